"""Opens what the settings enable; modules of disabled features are not imported."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from legato_protos.router.v1 import grounding_pb2 as pb
from services.chassis.process.passes import run_passes
from services.chassis.telemetry.full_disks import FullDisks
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock
from services.chassis.versioned_secrets import parse_versioned_secrets
from services.router.grounding.grounding import Grounding
from services.router.grounding.search import SearxSearch
from services.router.grounding.settings import KEY_VARIABLE, GroundingSettings

if TYPE_CHECKING:
    from services.router.grounding.documents.intake import Intake
    from services.router.grounding.documents.library import Library

MIGRATIONS = Path(__file__).parents[1] / "migrations"


@dataclass(frozen=True, slots=True)
class Opened:
    # Used by chats; None if nothing is configured.
    grounding: Grounding | None = None
    library: "Library | None" = None
    intake: "Intake | None" = None
    config: pb.GroundingConfig = field(default_factory=pb.GroundingConfig)


def open_grounding(
    settings: GroundingSettings, clock: Clock, log: Log, stack: AsyncExitStack, full_disks: FullDisks | None = None
) -> Opened:
    """Opens the configured stores and search; the stack closes them. What cannot be written is named in
    `full_disks`."""
    if not settings.has_store and not settings.search_url:
        return Opened()
    search, library, intake = None, None, None
    if settings.search_url:
        search = SearxSearch(settings.search_url, settings.search_timeout_s)
        stack.push_async_callback(search.aclose)
    config = pb.GroundingConfig(search=None if search is None else pb.SearchConfig(rounds_most=settings.search_rounds))
    if settings.has_store:
        library, intake, limits = _open_stores(settings, clock, log, stack, full_disks or FullDisks(log))
        config.MergeFrom(limits)
    return Opened(Grounding(settings, library, search, log), library, intake, config)


def _open_stores(
    settings: GroundingSettings,
    clock: Clock,
    log: Log,
    stack: AsyncExitStack,
    full_disks: FullDisks,
) -> "tuple[Library, Intake | None, pb.GroundingConfig]":
    """Opens what owners keep; returns it with its limits."""
    from services.chassis.database.database import open_database
    from services.router.grounding.documents.attachments import ATTACHMENTS_MOST, PASSAGES_MOST, SWEEP_INTERVAL_S
    from services.router.grounding.documents.intake import Intake
    from services.router.grounding.documents.library import Library
    from services.router.grounding.documents.notes import LONGEST_NOTE, NOTES_MOST
    from services.router.grounding.sealing import Sealer

    sealer = Sealer(
        parse_versioned_secrets(KEY_VARIABLE, settings.grounding_key),
        lambda account_id: log.warning("grounding.decryption_failed", account_id=account_id),
    )
    database = open_database("router", settings.database_url, settings.data)
    database.on_full = full_disks.noting(database.title)
    stack.callback(database.close)
    database.prepare(
        MIGRATIONS,
        migrates=settings.migrate_at_start,
        on_wait=lambda reason: log.info("migration.waiting", name="router", reason=reason),
    )
    library = Library(database, sealer, clock, memory=settings.memory, attachments=settings.attachments)
    memory = pb.MemoryConfig(
        notes_most=NOTES_MOST, note_characters_most=LONGEST_NOTE, prompt_tokens_most=settings.memory_tokens
    )
    limits = pb.GroundingConfig(memory=None if library.notes is None else memory)
    if library.attachments is None:
        return library, None, limits
    limits.attachments.MergeFrom(
        pb.AttachmentsConfig(
            attachments_most=ATTACHMENTS_MOST,
            bytes_most=settings.attachment_bytes,
            pages_most=settings.attachment_pages,
            passages_most=PASSAGES_MOST,
            prompt_tokens_most=settings.attachment_tokens,
        )
    )
    sweeping = asyncio.create_task(run_passes(library.attachments.sweep, SWEEP_INTERVAL_S, log))
    stack.callback(sweeping.cancel)
    on_full = full_disks.noting("the folder of new documents")
    return library, Intake(library.attachments, settings, clock, log, on_full=on_full), limits
