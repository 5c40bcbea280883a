"""Notes and documents for the console's tests: the router's own store and intake, on a SQLite file."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.router.grounding.assembly import MIGRATIONS, Opened, open_grounding
from services.router.grounding.blocks import NOTES as NOTES_BLOCK
from services.router.grounding.documents.attachments import ATTACHMENTS_MOST, Attachments
from services.router.grounding.documents.notes import NOTES_MOST
from services.router.grounding.records import Attachment, DocumentKind, Note
from services.router.grounding.sealing import Sealer
from services.router.grounding.settings import GroundingSettings
from services.router.grounding.store import attachments as stored_attachments
from services.router.grounding.store import notes as stored_notes
from tests.console.clock import StandingClock
from tests.console.copies import copy_of, restore
from tests.console.metering import ACCOUNT_ID, before_us
from tests.support.servers.migrated import migrated_sqlite

KEY: Final = b"a key for tests, of 32 bytes...."
SEALER: Final = Sealer({1: KEY})
# What it has sealed cannot be opened.
LOST: Final = Sealer({1: bytes(32)})
LARGEST_DOCUMENT_BYTES: Final = 64 * 1024
WARRANTY: Final = "The warranty of the Zephyr lasts for five years from the day of delivery."
NOTES: Final = (
    "I live in Ottawa, and I write in British English.",
    "My company is Analytical Engines. We repair and sell mechanical calculators.",
    "I am allergic to nuts.\nDo not suggest recipes with them.",
    "Invoices are due within 30 days.",
)


class Grounding:
    def __init__(self, folder: Path) -> None:
        self._file = folder / "router.db"
        self._database = Database(migrated_sqlite(self._file, "router", MIGRATIONS), "router")
        self._new = copy_of(self._file)
        self._settings = GroundingSettings(
            data=folder, memory=True, attachments=True, grounding_key=f"1:{KEY.hex()}",
            attachment_bytes=LARGEST_DOCUMENT_BYTES,
        )  # fmt: skip
        self._stack = AsyncExitStack()
        # By the largest document.
        self._opened: dict[int, Opened] = {}
        self._is_used = False
        self.is_configured = True
        self.largest_document_bytes = LARGEST_DOCUMENT_BYTES

    def reset(self) -> None:
        """Leaves an account without notes and documents."""
        if self._is_used:
            self.remove_all()
            self._is_used = False
        self.is_configured, self.largest_document_bytes = True, LARGEST_DOCUMENT_BYTES

    def open(self, log: Log) -> Opened:
        """Opens what is configured, for the servicers of one test."""
        self._is_used = True
        if not self.is_configured:
            return Opened()
        opened = self._opened.get(self.largest_document_bytes)
        if opened is None:
            settings = replace(self._settings, attachment_bytes=self.largest_document_bytes)
            opened = open_grounding(settings, StandingClock(), log, self._stack)
            self._opened[self.largest_document_bytes] = opened
        assert opened.library is not None
        opened.library.invalidate(ACCOUNT_ID)
        return opened

    async def close(self) -> None:
        await self._stack.aclose()
        self._database.close()

    def fill(self) -> None:
        """Gives the account notes and documents, one of each that cannot be decrypted."""
        for text in NOTES:
            self.add_note(text)
        self.add_note("Lost", LOST, "note_00000000000000ff")
        pdf, text = DocumentKind.PDF, DocumentKind.TEXT
        self.add_document("Zephyr manual.pdf", pdf, 2_412_330, 84, 211, {2: WARRANTY})
        self.add_document("prices-2026.md", text, 14_220, 1, 17)
        self.add_document("Lost", text, 300, 1, 1, sealer=LOST)

    def add_note(self, text: str, sealer: Sealer = SEALER, note_id: str = "") -> None:
        self._is_used = True
        count = len(self.notes())
        note = Note(
            note_id or f"note_{count + 1:016d}", ACCOUNT_ID, before_us(days=9 - count / 10),
            NOTES_BLOCK.tokens_of(Note("", "", 0, 0, text)), text,
        )  # fmt: skip
        with self._database.transaction(writes=True) as connection:
            stored_notes.add_note(connection, sealer, note, NOTES_MOST)

    def add_document(
        self, name: str, kind: DocumentKind, size_bytes: int, pages: int, passages: int,
        texts: dict[int, str] | None = None, sealer: Sealer = SEALER,
    ) -> None:  # fmt: skip
        """Adds a document, of whose passages only some are there."""
        self._is_used = True
        count = len(self.documents())
        attachment = Attachment(
            f"att_{count + 1:016d}", ACCOUNT_ID, before_us(days=9 - count), name, kind, size_bytes, pages, passages
        )
        rows = Attachments(self._database, sealer, StandingClock())._seal_passages(attachment, (texts or {}).items())
        with self._database.transaction(writes=True) as connection:
            stored_attachments.begin_attachment(connection, sealer, attachment, ATTACHMENTS_MOST)
            if texts:
                stored_attachments.add_passages(connection, attachment.attachment_id, *rows, 0)
            stored_attachments.finish_attachment(connection, attachment, ATTACHMENTS_MOST)

    def remove_all(self) -> None:
        restore(self._file, self._new)

    def notes(self) -> list[Note]:
        with self._database.transaction(writes=False) as connection:
            return stored_notes.list_notes(connection, SEALER, ACCOUNT_ID)

    def documents(self) -> list[Attachment]:
        with self._database.transaction(writes=False) as connection:
            return stored_attachments.list_attachments(connection, SEALER, ACCOUNT_ID)
