"""Answers of servers that search and number what they found, as Perplexity's do: the text cites [1], and the addresses
are in a list beside it, of which each event has all."""

from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw

from services.router.providers.answer import NOTHING
from services.router.providers.base import UNREADABLE
from services.router.providers.openai.answer import CompletionAnswer
from services.router.schema.citations import CITATIONS_MOST, Source, Sources


class _Result(msgspec.Struct, gc=False):
    url: str = ""
    title: str | None = None


class _Found(msgspec.Struct, gc=False):
    # The addresses in their order, which newer servers leave out.
    citations: Raw = Raw()
    search_results: Raw = Raw()


_found: Final = msgspec.json.Decoder(_Found)
_addresses: Final = msgspec.json.Decoder(list[str])
_results: Final = msgspec.json.Decoder(list[_Result])


class NumberedAnswer(CompletionAnswer):
    # The texts are kept, to find what they cite.
    has_plain_reads = False

    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []
        self._sources: list[_Result] = []

    def add_texts(self, *texts: str) -> None:
        self._texts += texts
        super().add_texts(*texts)

    def _read_event(self, data: bytes) -> None:
        super()._read_event(data)
        self._read_sources(data)

    def _read_whole(self, body: bytes) -> None:
        super()._read_whole(body)
        self._read_sources(body)

    def _read_sources(self, data: bytes) -> None:
        with suppress(*UNREADABLE):
            found = _found.decode(data)
            results = [] if found.search_results in NOTHING else _results.decode(found.search_results)
            addresses = [] if found.citations in NOTHING else _addresses.decode(found.citations)
            titles = {result.url: result.title for result in results}
            self._sources = [_Result(url, titles.get(url)) for url in addresses] or results or self._sources

    def close(self) -> None:
        # All of them are listed where the text cites none.
        sources = Sources(Source(each.title or "", each.url, is_from_search=True) for each in self._sources)
        for cited in Sources(sources[:CITATIONS_MOST]).cited_in("".join(self._texts)):
            self.cite(cited.start_index, cited.end_index, cited.title, cited.url)
        super().close()
