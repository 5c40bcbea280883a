"""Opens what the settings enable; modules of disabled features are not imported."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from protos.router.v1 import grounding_pb2 as pb
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock
from services.chassis.versioned_secrets import parse_versioned_secrets
from services.router.grounding.settings import KEY_VARIABLE, GroundingSettings

if TYPE_CHECKING:
    from services.router.grounding.attachments import Attachments
    from services.router.grounding.grounding import Grounding, Library
    from services.router.grounding.intake import Intake
    from services.router.grounding.search import Search

MIGRATIONS = Path(__file__).parents[1] / "migrations"


@dataclass(frozen=True, slots=True)
class Opened:
    # Used by chats; None if nothing is configured.
    grounding: "Grounding | None"
    library: "Library | None"
    intake: "Intake | None"
    config: pb.GroundingConfig


async def open_grounding(settings: GroundingSettings, clock: Clock, log: Log, stack: AsyncExitStack) -> Opened:
    """Opens the configured stores and search; the stack closes them."""
    if not settings.has_store and not settings.search_url:
        return Opened(None, None, None, pb.GroundingConfig())
    from services.router.grounding.grounding import Budgets, Grounding

    library = _open_library(settings, clock, log, stack) if settings.has_store else None
    budgets = Budgets(notes=settings.memory_tokens, passages=settings.attachment_tokens)
    search = _open_search(settings, stack) if settings.search_url else None
    grounding = Grounding(library, search, settings.search_rounds, budgets, log)
    attachments = library.attachments if library is not None else None
    intake = _open_intake(attachments, settings, clock, log, stack) if attachments is not None else None
    return Opened(grounding, library, intake, _describe(settings))


def _describe(settings: GroundingSettings) -> pb.GroundingConfig:
    from services.router.grounding.attachments import ATTACHMENTS_MOST, PASSAGES_MOST
    from services.router.grounding.notes import LONGEST_NOTE, NOTES_MOST

    config = pb.GroundingConfig()
    if settings.memory:
        config.memory.notes_most = NOTES_MOST
        config.memory.note_characters_most = LONGEST_NOTE
        config.memory.prompt_tokens_most = settings.memory_tokens
    if settings.attachments:
        config.attachments.attachments_most = ATTACHMENTS_MOST
        config.attachments.bytes_most = settings.attachment_bytes
        config.attachments.pages_most = settings.attachment_pages
        config.attachments.passages_most = PASSAGES_MOST
        config.attachments.prompt_tokens_most = settings.attachment_tokens
    if settings.search_url:
        config.search.rounds_most = settings.search_rounds
    return config


def _open_search(settings: GroundingSettings, stack: AsyncExitStack) -> "Search":
    from services.router.grounding.search import SearxSearch

    search = SearxSearch(settings.search_url, settings.search_timeout_s)
    stack.push_async_callback(search.aclose)
    return search


def _open_library(settings: GroundingSettings, clock: Clock, log: Log, stack: AsyncExitStack) -> "Library":
    from services.chassis.database.database import open_database
    from services.router.grounding.attachments import Attachments
    from services.router.grounding.grounding import Library
    from services.router.grounding.holdings import Holdings
    from services.router.grounding.notes import Notes
    from services.router.grounding.sealing import Sealer

    sealer = Sealer(
        parse_versioned_secrets(KEY_VARIABLE, settings.grounding_key),
        lambda place: log.warning("grounding.decryption_failed", account_id=place.account_id),
    )
    database = open_database("router", settings.database_url, settings.data)
    stack.callback(database.close)
    database.prepare(MIGRATIONS, migrates=settings.migrate_at_start)
    return Library(
        notes=Notes(database, sealer, clock) if settings.memory else None,
        attachments=Attachments(database, sealer, clock) if settings.attachments else None,
        holdings=Holdings(database, clock),
    )


def _open_intake(
    attachments: "Attachments", settings: GroundingSettings, clock: Clock, log: Log, stack: AsyncExitStack
) -> "Intake":
    from services.chassis.database.portions import run_passes
    from services.router.grounding.attachments import SWEEP_INTERVAL_S
    from services.router.grounding.files.extraction import Extraction
    from services.router.grounding.files.turns import Turns
    from services.router.grounding.files.upload_limits import UploadLimits
    from services.router.grounding.intake import Intake

    sweeping = asyncio.create_task(run_passes(attachments.sweep, SWEEP_INTERVAL_S, log))
    stack.callback(sweeping.cancel)
    return Intake(
        attachments,
        Extraction(settings.attachment_pages, log),
        Turns(clock),
        UploadLimits(settings.upload_bytes),
        settings.data,
        settings.attachment_bytes,
        log,
    )
