"""Answers of servers that search and number what they found."""

from typing import Any

import msgspec
import pytest

from services.router.providers.openai.numbered_answer import NumberedAnswer

TEXTS = ["Così è [1], ", "e così [2][3]. Non [4]."]
RESULTS = [{"title": f"Page {number}", "url": f"https://{number}.test/", "date": None} for number in (1, 2, 3)]
ADDRESSES = [each["url"] for each in RESULTS]


def cited_in(events: list[dict[str, Any]], *, whole: bool) -> list[tuple[str, str, str]]:
    answer = NumberedAnswer()
    for event in events:
        answer.begin_piece()
        (answer.read_whole if whole else answer.read_event)(msgspec.json.encode(event))
    answer.close()
    text = "".join(text for piece in answer.pieces for text in piece.contents)
    return [(text[each.start_index : each.end_index], each.title, each.url) for each in answer.pieces[-1].citations]


def chunk(text: str, finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}], **fields}


def completion(text: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **fields}


@pytest.mark.parametrize(
    "fields",
    [{"citations": ADDRESSES, "search_results": RESULTS}, {"search_results": RESULTS}],
    ids=["addresses and results", "results alone"],
)
def test_numbers_in_the_text_cite_what_was_found(fields: dict[str, Any]) -> None:
    expected = [("[1]", "Page 1", ADDRESSES[0]), ("[2]", "Page 2", ADDRESSES[1]), ("[3]", "Page 3", ADDRESSES[2])]
    assert cited_in([chunk(TEXTS[0], **fields), chunk(TEXTS[1], "stop", **fields)], whole=False) == expected
    assert cited_in([completion("".join(TEXTS), **fields)], whole=True) == expected


def test_addresses_without_titles_are_cited_too() -> None:
    assert cited_in([completion("It is [2].", citations=ADDRESSES)], whole=True) == [("[2]", "", ADDRESSES[1])]


def test_all_that_was_found_is_listed_where_the_text_cites_nothing() -> None:
    cited = cited_in([completion("It is.", search_results=RESULTS)], whole=True)
    assert cited == [("", f"Page {number}", f"https://{number}.test/") for number in (1, 2, 3)]


@pytest.mark.parametrize("sources", [None, "x", [7], [None], ["javascript:alert(1)"], {"a": 1}])
def test_sources_that_are_none_cite_nothing(sources: object) -> None:
    assert cited_in([completion("It is [1].", citations=sources)], whole=True) == []
