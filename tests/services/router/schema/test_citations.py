"""Places in an answer that name sources."""

import pytest

from services.router.schema.citations import CITATIONS_MOST, Source, Sources


def places(text: str, *, from_search: bool = False) -> list[tuple[str, str]]:
    """Lists what is cited of three sources: mark and title."""
    sources = Sources(Source(f"Source {number}", f"https://{number}.test/", from_search) for number in (1, 2, 3))
    return [(text[cited.start_index : cited.end_index], cited.title) for cited in sources.cited_in(text)]


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Blue [1], not red [3].", [("[1]", "Source 1"), ("[3]", "Source 3")]),
        ("Both [1, 2].", [("[1, 2]", "Source 1"), ("[1, 2]", "Source 2")]),
        ("Both [1][2].", [("[1]", "Source 1"), ("[2]", "Source 2")]),
        ("Café ☕ [2]", [("[2]", "Source 2")]),
        ("Twice [2] and [2]", [("[2]", "Source 2"), ("[2]", "Source 2")]),
        ("None [0] [4] [12] [x] [] items[1] rows[1][2] f(x)[2]", []),
        ("", []),
    ],
)
def test_marks_are_found_where_they_stand(text: str, cited: list[tuple[str, str]]) -> None:
    assert places(text) == cited


def test_results_of_a_search_are_all_listed_where_none_is_cited() -> None:
    assert places("Blue.", from_search=True) == [("", "Source 1"), ("", "Source 2"), ("", "Source 3")]
    assert places("Blue [2].", from_search=True) == [("[2]", "Source 2")]


def test_answer_full_of_marks_has_a_bounded_number_of_citations() -> None:
    assert len(places("[1] " * 1_000)) == CITATIONS_MOST
