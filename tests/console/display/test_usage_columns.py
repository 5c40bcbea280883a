from console.display.usage_columns import PARTS, TITLES, part_lines, titles_of
from services.rules.usage import COLUMNS, PART_OF, Usage, parts_of


def test_every_column_has_a_title_and_every_part_has_words() -> None:
    assert (tuple(TITLES), [*PARTS]) == (COLUMNS, [*PART_OF])


def test_a_part_is_told_with_its_share_of_the_whole() -> None:
    usage = Usage(prompt_tokens=3_000, cached_tokens=1_000)
    [line] = part_lines(usage, "prompt_tokens")
    assert line.replace("\N{NO-BREAK SPACE}", " ") == "1,000 cached (33 %)"
    assert part_lines(usage, "prompt_tokens", "count") == ["1,000 cached"]


def test_a_part_without_tokens_is_not_told() -> None:
    assert part_lines(Usage(prompt_tokens=3), "prompt_tokens") == []
    wholes = ["prompt_tokens", "completion_tokens"]
    assert [*titles_of(Usage(prompt_tokens=3))] == wholes


def test_columns_of_parts_stand_behind_that_of_the_whole() -> None:
    every = Usage(*range(1, 1 + len(COLUMNS)))
    wholes = [name for name in COLUMNS if name not in PART_OF]
    assert [*titles_of(every)] == [name for whole in wholes for name in (whole, *parts_of(whole))]
    some = Usage(prompt_tokens=1, cached_tokens=2, completion_tokens=3, cache_write_tokens=4, reasoning_tokens=5)
    assert part_lines(some, "completion_tokens", "count") == ["5 reasoning"]
    assert part_lines(some, "prompt_tokens", "count", ["cached_tokens"]) == ["4 written to a cache"]
