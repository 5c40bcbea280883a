"""Answers that cite pages, as each vendor tells it."""

from typing import Any, Final

from tests.services.router.providers.responses_recordings import BOTH, called, event, message, recorded, text_events
from tests.services.router.providers.wires import (
    CALL_PARTS,
    COUNTED,
    FINISH,
    GEMINI_USAGE,
    ROLE,
    TEXT,
    TEXT_PARTS,
    TEXTS,
    TWO_TOOLS,
    WHOLE_CALLS,
    Recording,
    anthropic,
    as_json,
    block,
    chunk,
    content,
    gemini_stream,
    openai_stream,
    openai_whole,
)

_GLOBE: Final = TEXT.index("🌍")
# The beginning, and what is behind letters of several bytes.
_CITED: Final = ((TEXT[:5], "Così", "https://cosi.test/"), ("🌍", "Il mondo", "https://mondo.test/"))
_PLACES: Final = ((0, 5), (_GLOBE, _GLOBE + 1))


def _annotations(*, nested: bool) -> list[dict[str, Any]]:
    cited = [
        {"start_index": start, "end_index": end, "title": title, "url": url}
        for (start, end), (_, title, url) in zip(_PLACES, _CITED, strict=True)
    ]
    if nested:
        return [{"type": "url_citation", "url_citation": {**each, "content": "…"}} for each in cited]
    return [{"type": "url_citation", **each} for each in cited]


def _openai() -> Recording:
    first, second = _annotations(nested=True)
    # Of the second text, and by itself; one comes twice.
    events = [
        ROLE,
        TEXTS[0],
        chunk({**TEXTS[1]["choices"][0]["delta"], "annotations": [first]}),
        chunk({"annotations": [first, second]}),
    ]
    recording = openai_stream([*events, *WHOLE_CALLS, FINISH, COUNTED, "[DONE]"], citations=_CITED)
    whole = openai_whole(annotations=[first, second])
    return Recording(recording.stream, whole, citations=_CITED)


def _citation(number: int) -> dict[str, Any]:
    _, title, url = _CITED[number]
    if number:
        return {"type": "search_result_location", "source": url, "title": title, "cited_text": "…"}
    return {"type": "web_search_result_location", "url": url, "title": title, "encrypted_index": "…"}


def _anthropic() -> Recording:
    """Each cited text is a block of its own. What is cited of a document has no address."""
    of_document = {"type": "char_location", "document_title": "Il mondo", "start_char_index": 0, "end_char_index": 4}
    texts = (TEXT[:5], TEXT[5:_GLOBE], "🌍", TEXT[_GLOBE + 1 :])
    citations: tuple[list[dict[str, Any]], ...] = ([_citation(0)], [of_document], [_citation(1)], [])
    events = [
        block(
            index,
            "text",
            {"text": ""},
            {"type": "text_delta", "text": text},
            *({"type": "citations_delta", "citation": each} for each in cited),
        )
        for index, (text, cited) in enumerate(zip(texts, citations, strict=True))
    ]
    tools = [{**each, "index": each["index"] + len(texts) - 1} for each in TWO_TOOLS]
    recording = anthropic(*events, tools)
    together = zip(texts, citations, strict=True)
    blocks = as_json([{"type": "text", "text": text, "citations": cited or None} for text, cited in together])
    whole = recording.whole.replace(as_json([{"type": "text", "text": TEXT}])[:-1].encode(), blocks[:-1].encode())
    return Recording(recording.stream, whole, citations=_CITED)


def _gemini() -> Recording:
    def segment(text: str) -> dict[str, Any]:
        begin = len(TEXT[: TEXT.index(text)].encode())
        return {"startIndex": begin, "endIndex": begin + len(text.encode()), "text": text}

    metadata: dict[str, Any] = {
        "webSearchQueries": ["mondo"],
        "groundingChunks": [{"web": {"uri": url, "title": title}} for _, title, url in _CITED],
        "groundingSupports": [
            {"segment": segment(text), "groundingChunkIndices": [number]} for number, (text, _, _) in enumerate(_CITED)
        ],
    }
    # The end of the stream cites what came before; of a whole answer a place is in one of its parts.
    end = content(finish_reason="STOP", usage=GEMINI_USAGE)
    end["candidates"][0]["groundingMetadata"] = metadata
    events = [*(content(part) for part in [*TEXT_PARTS, *CALL_PARTS]), end]
    recording = gemini_stream(events)
    begin = len(TEXT[5:_GLOBE].encode())
    in_part = {"partIndex": 1, "startIndex": begin, "endIndex": begin + len("🌍".encode()), "text": "🌍"}
    metadata["groundingSupports"][1]["segment"] = in_part
    whole = content(*TEXT_PARTS, *CALL_PARTS, finish_reason="STOP", usage=GEMINI_USAGE)
    whole["candidates"][0]["groundingMetadata"] = metadata
    return Recording(recording.stream, as_json(whole).encode(), citations=_CITED)


def _responses() -> Recording:
    annotations = _annotations(nested=False)
    said = message()
    said["content"][0]["annotations"] = annotations
    added = [
        event("output_text.annotation.added", 0, content_index=0, annotation_index=at, annotation=each)
        for at, each in enumerate(annotations)
    ]
    events = text_events()
    place = next(at for at, each in enumerate(events) if each["type"] == "response.output_text.done")
    recording = recorded([*events[:place], *added, *events[place:], *BOTH], [said, called(0), called(1)])
    return Recording(recording.stream, recording.whole, citations=_CITED)


CITATION_RECORDINGS: Final = {
    "pages that the text cites": {
        "openai": _openai(),
        "anthropic": _anthropic(),
        "gemini": _gemini(),
        "responses": _responses(),
    },
}
