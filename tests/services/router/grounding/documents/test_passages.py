"""Documents, split into passages."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.grounding.documents.passages import LONGEST_CHARACTERS, split_into_passages


def test_short_document_is_one_passage() -> None:
    assert list(split_into_passages("One.\n\nTwo,\nand three.\r\n")) == ["One.\nTwo,\nand three."]


def test_paragraphs_stay_whole_where_they_fit() -> None:
    paragraphs = [f"{word} " * 100 for word in ("first", "second", "third")]
    passages = list(split_into_passages("\n\n".join(paragraphs)))
    assert [passage.strip() for passage in passages] == [f"{p.strip()}" for p in paragraphs]


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("ab .!\n\t"), max_size=6_000))
def test_no_passage_is_too_long_and_no_word_is_lost(text: str) -> None:
    passages = list(split_into_passages(text))
    assert all(0 < len(passage) <= LONGEST_CHARACTERS for passage in passages)
    assert "".join("".join(passages).split()) == "".join(text.split())
