from console.display.usage_columns import PARTS, TITLES, part_lines
from services.rules.usage import COLUMNS, PART_OF, Usage


def test_every_column_has_a_title_and_every_part_has_words() -> None:
    assert (tuple(TITLES), [*PARTS]) == (COLUMNS, [*PART_OF])


def test_a_part_is_told_with_its_share_of_the_whole() -> None:
    usage = Usage(prompt_tokens=3_000, cached_tokens=1_000)
    [line] = part_lines(usage, "prompt_tokens")
    assert line.replace("\N{NO-BREAK SPACE}", " ") == "1,000 cached (33 %)"
    assert part_lines(usage, "prompt_tokens", "count") == ["1,000 cached"]


def test_a_part_without_tokens_is_only_told_where_all_are() -> None:
    assert part_lines(Usage(prompt_tokens=3), "prompt_tokens") == []
    assert part_lines(Usage(), "prompt_tokens", "count", with_none=True) == ["0 cached"]
