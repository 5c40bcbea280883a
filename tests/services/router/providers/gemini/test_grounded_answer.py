"""Places that Google tells in bytes."""

from typing import Any

import msgspec
import pytest

from services.router.providers.gemini.grounded_answer import GroundedAnswer

TEXTS = ["È così, ", "e il mondo 🌍 gira."]
WHOLE = "".join(TEXTS)
PAGE = {"web": {"uri": "https://mondo.test/", "title": "Il mondo"}}


def cited_in(metadata: Any) -> list[tuple[str, str, str]]:
    candidate = {"content": {"parts": [{"text": text} for text in TEXTS]}, "finishReason": "STOP"}
    answer = GroundedAnswer()
    answer.begin_piece()
    answer.read_whole(msgspec.json.encode({"candidates": [{**candidate, "groundingMetadata": metadata}]}))
    answer.close()
    cited = answer.pieces[-1].citations
    return [(WHOLE[each.start_index : each.end_index], each.title, each.url) for each in cited]


def supported(segment: dict[str, Any], *, source: dict[str, Any] | None = None, numbers: Any = (0,)) -> dict[str, Any]:
    supports = [{"segment": segment, "groundingChunkIndices": numbers}]
    return {"groundingChunks": [source or PAGE], "groundingSupports": supports}


def segment(text: str, begin: int, **fields: Any) -> dict[str, Any]:
    return {"startIndex": begin, "endIndex": begin + len(text.encode()), "text": text, **fields}


@pytest.mark.parametrize(
    "place",
    [
        segment("mondo 🌍", len(b"e il "), partIndex=1),
        segment("mondo 🌍", len("È così, e il ".encode())),
        # Wrong, but it says what it cites.
        segment("mondo 🌍", 3),
        {**segment("mondo 🌍", len(b"e il "), partIndex=1), "text": ""},
    ],
    ids=["of a part", "of the whole text", "elsewhere", "without its text"],
)
def test_place_is_found_in_the_whole_text(place: dict[str, Any]) -> None:
    assert cited_in(supported(place)) == [("mondo 🌍", "Il mondo", "https://mondo.test/")]


@pytest.mark.parametrize("tool", ["web", "retrievedContext", "maps"])
def test_page_is_cited_whatever_tool_has_found_it(tool: str) -> None:
    assert cited_in(supported(segment("È", 0), source={tool: PAGE["web"]})) == [
        ("È", "Il mondo", "https://mondo.test/")
    ]


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        7,
        {},
        {"groundingChunks": 7},
        supported(segment("nowhere", 900)),
        supported({"startIndex": -5, "endIndex": 2}),
        supported({"startIndex": 9, "endIndex": 2}),
        supported(segment("È", 0), numbers=[1, -1]),
        supported(segment("È", 0), numbers=None),
        supported(segment("È", 0), source={"web": {"uri": "javascript:alert(1)"}}),
        supported(segment("È", 0), source={"image": {"uri": "https://mondo.test/"}}),
        {"groundingSupports": [{}]},
    ],
)
def test_metadata_without_a_place_or_a_page_cite_nothing(metadata: Any) -> None:
    assert cited_in(metadata) == []
