import asyncio
import errno
from collections.abc import Callable

import pytest

from services.chassis.telemetry.full_disks import FullDisks, is_of_full_disk
from services.chassis.telemetry.log import Log


async def test_full_disk_is_named_once_until_it_has_room(log: Log, log_text: Callable[[], str]) -> None:
    disks = FullDisks(log)
    note, note_other = disks.noting("auth.db"), disks.noting("the copy of the audit log")
    for _ in range(3):
        # The writers of databases are threads.
        await asyncio.to_thread(note, True)
        await asyncio.to_thread(note_other, False)
    assert disks.names == ["auth.db"]
    await asyncio.to_thread(note, False)
    await asyncio.sleep(0)
    assert disks.names == []
    assert [log_text().count(event) for event in ("disk.full", "disk.has_room", "auth.db", "audit")] == [1, 1, 2, 0]


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (OSError("The bucket is not there"), False),
        (ValueError("28"), False),
        (None, False),
    ],
)
def test_error_tells_whether_the_disk_is_full(error: BaseException | None, is_full: bool) -> None:
    assert is_of_full_disk(error) is is_full
