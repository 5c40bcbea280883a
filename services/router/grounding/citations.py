"""Tracks the sources given to a model, and finds where its answer cites them.

Sources are numbered, and the model is asked to cite them by number, as in [2]. Citations become OpenAI's `annotations`.
If no search result is cited, all of them are listed at the end of the text, since the model requested them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from protos.router.v1.router_pb2 import ChatRequest, ChatResponse, Citation
from services.router.answers.grants import ChatConversation

_MARK: Final = re.compile(r"\[(\d{1,3}(?:\s?,\s?\d{1,3})*)\]")
# One or several in a row; not after a letter, since `list[1][2]` is code.
_MARKS: Final = re.compile(rf"(?<![\w\])])(?:{_MARK.pattern})+")
CITATIONS_MOST: Final = 200


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    title: str
    url: str
    is_from_search: bool


class Sources:
    """The sources of one chat, numbered from 1."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, title: str, url: str, *, is_from_search: bool = False) -> None:
        self._sources.append(Source(title, url, is_from_search))

    def __len__(self) -> int:
        return len(self._sources)

    def keep_first(self, count: int) -> None:
        """Drops all later sources, which the model has not read."""
        del self._sources[count:]

    def cited_in(self, text: str) -> list[Citation]:
        """Returns the citations in the order of the text."""
        cited = list(islice(self._marked(text), CITATIONS_MOST))
        if not any(source.is_from_search for source, _, _ in cited):
            cited += [(source, len(text), len(text)) for source in self._sources if source.is_from_search]
        return [
            Citation(start_index=start, end_index=end, title=source.title, url=source.url)
            for source, start, end in cited[:CITATIONS_MOST]
        ]

    def _marked(self, text: str) -> Iterator[tuple[Source, int, int]]:
        for row in _MARKS.finditer(text):
            for mark in _MARK.finditer(text, *row.span()):
                for number in mark[1].split(","):
                    if 1 <= int(number) <= len(self._sources):
                        yield self._sources[int(number) - 1], mark.start(), mark.end()


class CitingConversation:
    """Wraps a conversation and collects the answer, so that its last message can list the cited sources."""

    def __init__(self, conversation: ChatConversation, sources: Sources) -> None:
        self._conversation = conversation
        self._sources = sources
        self._contents: list[str] = []
        self._refuses = False

    async def receive(self) -> ChatRequest:
        return await self._conversation.receive()

    async def send(self, response: ChatResponse) -> None:
        self._contents += response.contents
        self._refuses = self._refuses or response.refusal
        # A refusal has no citations: their positions would refer to text that is not an answer.
        if response.HasField("finished") and not self._refuses:
            response.finished.citations.extend(self._sources.cited_in("".join(self._contents)))
        await self._conversation.send(response)

    @property
    def has_room(self) -> bool:
        return self._conversation.has_room

    # The texts are needed here.
    send_packed = None

    def send_soon(self, response: ChatResponse) -> None:
        self._contents += response.contents
        self._refuses = self._refuses or response.refusal
        self._conversation.send_soon(response)
