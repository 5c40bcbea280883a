"""Settles what an earlier process left in the journal."""

import asyncio
import contextlib
from itertools import chain, count
from pathlib import Path
from typing import Final

from edge.billing.journal import OPEN, Journal, Slot
from edge.billing.journal_file import JournalSetAside, JournalTaken
from edge.billing.metering import Metering
from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.process import failpoints
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log

# Startup waits no longer than this for metering: unsettled slots are safe in the journal.
TIMEOUT_S: Final = 10.0


class Journals:
    def __init__(self, folder: Path, log: Log) -> None:
        """Takes a journal that no process owns, or a new one."""
        self._folder = folder
        self._log = log
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.own = self._take_first()
        except OSError as error:
            raise SettingsError(f"LEGATO_JOURNALS: cannot write to {folder}: {error.strerror}") from error
        self._adopted: list[Journal] = []

    async def recover(self, metering: Metering) -> None:
        """Settles what was left in our own journal and in those that no process owns, before serving begins."""
        self._adopted = [journal for path in self._paths() if (journal := self._claim(path)) is not None]
        for journal in (self.own, *self._adopted):
            for slot in list(journal.taken.values()):
                failpoints.hit("edge.replaying")
                self._log.warning("journal.replayed", request_id=slot.request_id, account_id=slot.account_id)
                seal(slot)
                metering.resolve(slot, acknowledged="edge.replayed", is_refused=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                await metering.settled()
        failpoints.hit("edge.recovered")
        self._release_empty()

    def close(self) -> None:
        for journal in (self.own, *self._adopted):
            journal.close()

    def _take_first(self) -> Journal:
        new_paths = (self._folder / f"edge-{number}.journal" for number in count(1))
        paths = chain(self._paths(), new_paths)
        return next(journal for path in paths if (journal := self._claim(path)) is not None)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("*.journal"))

    def _claim(self, path: Path) -> Journal | None:
        try:
            journal = Journal(path)
        except JournalTaken:
            return None
        except JournalSetAside as aside:
            self._log.warning("journal.lost", name=aside.name, reason=aside.reason)
            return self._claim(path)
        if journal.is_lost:
            self._log.warning("journal.lost", name=path.name, reason="rebooted")
        return journal

    def _release_empty(self) -> None:
        """Closes empty journals, so that other edges may take them."""
        for journal in list(self._adopted):
            if not journal.taken:
                self._adopted.remove(journal)
                journal.close()


def seal(slot: Slot) -> None:
    """Seals a slot that a crashed process left open; the request is not resumed."""
    if slot.kind == OPEN:
        # Unmarked, the first piece may not have reached the client: then the loss is ours.
        slot.seal(slot.usage, pb.BASIS_JOURNAL if slot.marked else pb.BASIS_UNSPECIFIED, pb.END_CRASHED)
