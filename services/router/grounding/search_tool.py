"""The search function offered to a model: its definition, and the execution of its calls."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from services.router.grounding.blocks import RESULTS
from services.router.grounding.records import SearchResult
from services.router.grounding.search import Search, SearchFailed
from services.router.prompts import tokens
from services.router.providers.base import UNREADABLE
from services.router.schema.citations import Source, Sources
from services.router.schema.tools import Tools

NAME: Final = "search_web"
_TOOLS_JSON: Final = msgspec.json.encode(
    [
        {
            "type": "function",
            "function": {
                "name": NAME,
                "description": (
                    "Search the web, for what you do not know or what may have changed. Answer without it where you"
                    " can. Results are numbered: cite those that you use, as in [1]."
                ),
                "parameters": {
                    "type": "object",
                    "properties": {"query": {"type": "string", "description": "A few words, as for a search engine."}},
                    "required": ["query"],
                },
            },
        }
    ]
)
TOOLS: Final = Tools(_TOOLS_JSON)
# Offered when no more searches are made: the conversation has calls of the function.
TOOLS_TO_EXPLAIN_CALLS: Final = Tools(_TOOLS_JSON, b'"none"')

CALLS_AT_ONCE_MOST: Final = 3
RESULTS_TOKENS_MOST: Final = 1500

_AWAY: Final = "The search is not available right now. Answer without it, and say so where that matters."
_NOT_READ: Final = "The query could not be read: give it as a text."
_TOO_MANY: Final = "There were too many searches at once: this one was not made."
_NOTHING: Final = "Nothing was found."
_NO_ROOM: Final = "There is no room for more results: answer with what you have."


@dataclass(slots=True, repr=False)
class SearchCall:
    """A call as the model made it."""

    call_id: str
    name: str
    arguments: str = ""

    def add(self, arguments: str) -> None:
        self.arguments += arguments


class _Arguments(msgspec.Struct):
    query: str


_arguments: Final = msgspec.json.Decoder(_Arguments)


@dataclass(slots=True, repr=False)
class SearchTool:
    """The search tool of one chat."""

    search: Search
    sources: Sources
    # Limits all results together.
    budget_tokens: int
    searches_left: int
    # Receives why a search failed.
    on_failure: Callable[[str], None]
    # How many there were before the last results.
    sources_before: int = 0

    @property
    def may_search(self) -> bool:
        return self.searches_left > 0 and self.budget_tokens > 0

    async def answer(self, calls: Sequence[SearchCall]) -> list[str]:
        """Returns the results, one text per call."""
        self.searches_left -= 1
        self.sources_before = len(self.sources)
        found = await asyncio.gather(*(self._find(call) for call in calls[:CALLS_AT_ONCE_MOST]))
        texts = [answer if isinstance(answer, str) else self._describe(answer) for answer in found]
        return texts + [_TOO_MANY] * (len(calls) - len(texts))

    def take_back(self) -> None:
        """Drops the sources of the last results, which the model has not read."""
        del self.sources[self.sources_before :]

    async def _find(self, call: SearchCall) -> list[SearchResult] | str:
        if call.name != NAME:
            return "There is no such function."
        try:
            query = _arguments.decode(call.arguments).query.strip()
        except UNREADABLE:
            return _NOT_READ
        if not query:
            return _NOT_READ
        try:
            return await self.search.find(query)
        except SearchFailed as away:
            self.searches_left = 0
            self.on_failure(str(away))
            return _AWAY

    def _describe(self, results: list[SearchResult]) -> str:
        if not results:
            return _NOTHING
        shown = list(RESULTS.fitting(results, min(self.budget_tokens, RESULTS_TOKENS_MOST)))
        if not shown:
            self.budget_tokens = 0
            return _NO_ROOM
        text = RESULTS.render(shown, first_number=len(self.sources) + 1)
        self.sources += [Source(result.title, result.url, is_from_search=True) for result in shown]
        self.budget_tokens -= tokens.count(text)
        return text


def tools_tokens() -> int:
    """Returns what the function's definition adds to a prompt."""
    return tokens.count_once(_TOOLS_JSON.decode())
