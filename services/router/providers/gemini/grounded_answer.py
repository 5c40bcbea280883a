"""Answers of Gemini's models whose route has a tool of Google's own, such as its search: they cite pages.

Places are in bytes of UTF-8: of a part of the content, or of all texts so far where the answer is streamed. So the
texts are kept, to find the characters.
"""

from contextlib import suppress

import msgspec
from msgspec import Raw

from services.router.providers.answer import NOTHING
from services.router.providers.base import UNREADABLE
from services.router.providers.gemini.answer import ContentAnswer


class _Page(msgspec.Struct, gc=False):
    uri: str | None = None
    title: str | None = None


class _Source(msgspec.Struct, gc=False, rename="camel"):
    """A page that was found, by the tool that found it."""

    web: _Page | None = None
    retrieved_context: _Page | None = None
    maps: _Page | None = None


class _Segment(msgspec.Struct, gc=False, rename="camel"):
    start_index: int = 0
    end_index: int = 0
    part_index: int = 0
    text: str = ""


class _Support(msgspec.Struct, gc=False, rename="camel"):
    segment: _Segment | None = None
    grounding_chunk_indices: list[int] | None = None


class _Grounding(msgspec.Struct, gc=False, rename="camel"):
    grounding_chunks: list[_Source] | None = None
    grounding_supports: list[_Support] | None = None


_groundings = msgspec.json.Decoder(_Grounding)


class GroundedAnswer(ContentAnswer):
    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []

    def add_texts(self, *texts: str) -> None:
        self._texts += texts
        super().add_texts(*texts)

    def _read_grounding(self, grounding: Raw) -> None:
        if grounding in NOTHING:
            return
        with suppress(*UNREADABLE):
            reported = _groundings.decode(grounding)
            sources = reported.grounding_chunks or []
            texts = [text.encode() for text in self._texts]
            for support in reported.grounding_supports or ():
                place = None if support.segment is None else _place_of(support.segment, texts)
                for number in support.grounding_chunk_indices or ():
                    if place is not None and 0 <= number < len(sources):
                        source = sources[number]
                        page = source.web or source.retrieved_context or source.maps or _Page()
                        self.cite(*place, page.title, page.uri)


def _place_of(segment: _Segment, texts: list[bytes]) -> tuple[int, int] | None:
    """Returns where a segment is in the whole text, in characters; None if it is not there."""
    whole, cited = b"".join(texts), segment.text.encode()
    before_part = sum(map(len, texts[: segment.part_index]))
    for begin in (before_part + segment.start_index, segment.start_index):
        end = begin - segment.start_index + segment.end_index
        if 0 <= begin <= end <= len(whole) and (not cited or whole[begin:end] == cited):
            return len(whole[:begin].decode(errors="ignore")), len(whole[:end].decode(errors="ignore"))
    begin = whole.find(cited) if cited else -1
    return None if begin < 0 else (len(whole[:begin].decode()), len(whole[: begin + len(cited)].decode()))
