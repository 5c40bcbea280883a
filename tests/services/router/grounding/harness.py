"""A router whose chats are grounded, in front of a model and a search that do as they are told."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.tracing import Tracer
from services.chassis.timing.deadlines import SystemClock
from services.router.chat.completion import Completions
from services.router.grounding.assembly import MIGRATIONS
from services.router.grounding.documents.attachments import Attachments
from services.router.grounding.documents.library import Library
from services.router.grounding.documents.notes import Notes
from services.router.grounding.grounding import Grounding
from services.router.grounding.records import Attachment, Document, DocumentKind
from services.router.grounding.sealing import Sealer
from services.router.grounding.search import SearxSearch
from services.router.grounding.settings import GroundingSettings
from services.router.models.states import ClassObserver
from services.router.providers.base import Timeouts
from services.router.routes.class_route import ClassRoute
from services.router.routes.target import Target
from tests.services.router.harness import Answer, Router, as_json, running_router, target
from tests.support.outside.searx import Searx
from tests.support.servers.migrated import migrated_sqlite
from tests.support.upstreams.openai import Upstream

KEY = b"a key for tests, of 32 bytes....."
ACCOUNT = "acct_1"
SEARCHES_MOST = 2
SETTINGS = GroundingSettings(memory_tokens=100, attachment_tokens=300, search_rounds=SEARCHES_MOST)


class RouterGroundingHarness:
    def __init__(self, router: Router, upstream: Upstream, database: Database, library: Library) -> None:
        self.router = router
        self.upstream = upstream
        self.database = database
        self.library = library

    @property
    def notes(self) -> Notes:
        assert self.library.notes is not None
        return self.library.notes

    @property
    def attachments(self) -> Attachments:
        assert self.library.attachments is not None
        return self.library.attachments

    async def note(self, text: str, account_id: str = ACCOUNT) -> None:
        await self.notes.add(account_id, text)
        self.library.invalidate(account_id)

    async def attach(self, name: str, pages: list[str], account_id: str = ACCOUNT) -> Attachment:
        document = Document(DocumentKind.PDF, 1, pages)
        attachment = await self.attachments.add(account_id, name, document, lambda done, total: None)
        self.library.invalidate(account_id)
        return attachment

    async def ask(self, *messages: dict[str, Any] | str, **fields: Any) -> Answer:
        """A text is what the user says. Everything is switched on, unless a field says otherwise."""
        said = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
        switches = {"search": True, "memory": True, "attachments": True}
        return await self.router.ask(as_json(said), **{"account_id": ACCOUNT, **switches, **fields})

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The messages of the last request that the model got."""
        messages: list[dict[str, Any]] = self.upstream.requests[-1].json["messages"]
        return messages


@asynccontextmanager
async def running_harness(
    folder: Path,
    log: Log,
    upstream: Upstream,
    *,
    searx: Searx | None = None,
    served_by: Target | None = None,
    search_timeout_s: float = 5,
    timeouts: Timeouts | None = None,
    tracer: Tracer | None = None,
    route: ClassRoute | None = None,
    also: Callable[[Completions, Library], object] | None = None,
    observers: Sequence[ClassObserver] = (),
) -> AsyncIterator[RouterGroundingHarness]:
    database = Database(migrated_sqlite(folder / "router.db", "router", MIGRATIONS), "router")
    library = Library(database, Sealer({1: KEY}), SystemClock())
    search = SearxSearch(searx.base_url, search_timeout_s) if searx is not None else None
    grounding = Grounding(SETTINGS, library, search, log)
    try:
        served_by_all = (served_by or target("main"),) if route is None else route.targets
        targets = dict.fromkeys(served_by_all, upstream)
        registering = None if also is None else lambda completions: also(completions, library)
        async with running_router(
            folder,
            log,
            targets,
            timeouts,
            grounding=grounding,
            tracer=tracer,
            also=registering,
            route=route,
            observers=observers,
        ) as router:
            yield RouterGroundingHarness(router, upstream, database, library)
    finally:
        if search is not None:
            await search.aclose()
        database.close()
