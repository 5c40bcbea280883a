"""The copy of the audit log: in order, whole and once, whatever fails; and what a restored database gets from it."""

import asyncio
import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.audit.rules import copy as audit_copy
from services.auth.audit.rules.copy import AuditCopy, CopyBroken
from services.auth.audit.rules.copy_end import CopyEnd
from services.auth.audit.store.replay import replay
from services.auth.core.peppers import Peppers
from services.auth.core.records.audit import AuditEvent
from services.auth.core.store.audit import forget_copy, read_head
from services.auth.service import AuthService
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.object_store import Folder
from services.chassis.telemetry.full_disks import FullDisks
from services.chassis.telemetry.log import Log
from tests.services.auth.audit.backup import Backup
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import Console, call_directly
from tests.support.fakes import FakeClock

NewCopy = Callable[[], AuditCopy]


class FailingFolder(Folder):
    """A folder whose disk is full, or that is lost, as long as a test says."""

    fails = False

    def put(self, name: str, content: bytes | Path) -> None:
        if self.fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().put(name, content)


@pytest.fixture
def folder(tmp_path: Path) -> FailingFolder:
    return FailingFolder(tmp_path / "copy")


@pytest.fixture
def new_copy(database: Database, auth: AuthService, folder: FailingFolder, log: Log) -> NewCopy:
    """Makes what another replica, or the next process, would have."""
    return lambda: AuditCopy(database, auth.parts.audit, folder, log, on_full=FullDisks(log).noting("the copy"))


@pytest.fixture
async def copy(new_copy: NewCopy) -> AuditCopy:
    opened = new_copy()
    await opened.open()
    return opened


async def copy_all(copy: AuditCopy) -> None:
    while await copy.copy_segment():
        pass


def event_nos(folder: Folder) -> list[int]:
    """All events of the copy, in the order of its segments."""
    lines = [line for name in folder.list() for line in folder.get(name).splitlines()]
    return [json.loads(line)[0]["event_no"] for line in lines]


async def new_key(auth: AuthService, account_id: str = "") -> tuple[str, str]:
    """Returns a key's id and its secret."""
    if not account_id:
        made = await call_directly(auth, auth_pb2.CreateAccountRequest(name="Acme"))
        account_id = made.account.account_id
    made = await call_directly(auth, auth_pb2.CreateKeyRequest(account_id=account_id, name="laptop"))
    return made.key.key_id, made.api_key


async def revoke(auth: AuthService, key_id: str) -> None:
    await call_directly(auth, auth_pb2.RevokeKeyRequest(key_id=key_id))


async def is_accepted(auth: AuthService, secret: str) -> bool:
    try:
        await call_directly(auth, auth_pb2.VerifyRequest(api_key=secret))
    except LegatoError as error:
        return error.reason is not Reason.KEY_INVALID
    return True


async def test_a_key_that_was_revoked_after_the_backup_stays_revoked(
    auth: AuthService, copy: AuditCopy, new_copy: NewCopy, database: Database, console: Console
) -> None:
    (revoked_id, revoked), (_, kept) = await new_key(auth), await new_key(auth)
    await copy_all(copy)
    backup = Backup(database)
    await revoke(auth, revoked_id)
    await copy_all(copy)
    backup.restore()
    assert await is_accepted(auth, revoked)
    await new_copy().open()
    assert not await is_accepted(auth, revoked)
    assert await is_accepted(auth, kept)
    # The log itself is whole again, too, and goes on.
    verified = await console.call(console.admin_audit.VerifyAuditEvents, pb.VerifyAuditEventsRequest())
    assert (verified.events, list(verified.broken_event_nos)) == (5, [])
    after = new_copy()
    await after.open()
    await new_key(auth)
    await copy_all(after)
    await new_copy().open()


async def test_what_a_process_did_not_copy_before_it_was_killed_is_copied_by_the_next(
    auth: AuthService, copy: AuditCopy, new_copy: NewCopy, database: Database, folder: Folder
) -> None:
    key_id, secret = await new_key(auth)
    await copy_all(copy)
    backup = Backup(database)
    await revoke(auth, key_id)
    # Killed between the transaction and the copy; another replica was running, or a next one starts.
    following = new_copy()
    await following.open()
    await copy_all(following)
    assert event_nos(folder) == [1, 2, 3]
    backup.restore()
    await new_copy().open()
    assert not await is_accepted(auth, secret)


async def test_replicas_that_copy_at_the_same_time_write_each_event_once(
    auth: AuthService, new_copy: NewCopy, folder: Folder
) -> None:
    replicas = [new_copy() for _ in range(3)]
    for replica in replicas:
        await replica.open()
    for _ in range(8):
        await asyncio.gather(new_key(auth), *(copy_all(replica) for replica in replicas))
    await asyncio.gather(*(copy_all(replica) for replica in replicas))
    assert event_nos(folder) == list(range(1, 17))
    await new_copy().open()


async def test_a_copy_that_cannot_be_written_delays_no_revocation_and_loses_none(
    auth: AuthService,
    copy: AuditCopy,
    folder: FailingFolder,
    monkeypatch: pytest.MonkeyPatch,
    log_text: Callable[[], str],
) -> None:
    monkeypatch.setattr(audit_copy, "INTERVAL_S", 0.01)
    key_id, secret = await new_key(auth)
    folder.fails = True
    running = asyncio.create_task(copy.run())
    await revoke(auth, key_id)
    assert not await is_accepted(auth, secret)
    async with asyncio.timeout(30):
        # Events wait for the copy from before it is first tried.
        while not (copy.lag_s and "disk.full" in log_text()):
            await asyncio.sleep(0.01)
        assert event_nos(folder) == []
        folder.fails = False
        while copy.lag_s:
            await asyncio.sleep(0.01)
    assert event_nos(folder) == [1, 2, 3]
    running.cancel()
    await asyncio.sleep(0)
    assert [log_text().count(event) for event in ("disk.full", "disk.has_room")] == [1, 1]


async def test_an_answer_that_was_lost_does_not_keep_the_copy_from_going_on(
    auth: AuthService, copy: AuditCopy, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Folder.put

    def put_and_fail(self: Folder, name: str, content: bytes | Path) -> None:
        put(self, name, content)
        raise OSError("Connection reset")

    await new_key(auth)
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "put", put_and_fail)
        with pytest.raises(OSError, match="Connection reset"):
            await copy.copy_segment()
    await new_key(auth)
    await copy_all(copy)
    assert event_nos(folder) == [1, 2, 3, 4]


async def test_a_replay_that_is_killed_in_the_middle_is_finished_by_the_next(
    auth: AuthService, copy: AuditCopy, new_copy: NewCopy, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_copy, "SEGMENT_EVENTS", 1)
    keys = [await new_key(auth) for _ in range(3)]
    await copy_all(copy)
    backup = Backup(database)
    for key_id, _ in keys:
        await revoke(auth, key_id)
    await copy_all(copy)
    backup.restore()
    replayed = []

    def die_at_the_second(connection: sa.Connection, event: AuditEvent) -> None:
        replay(connection, event)
        replayed.append(event)
        if len(replayed) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(audit_copy, "replay", die_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            await new_copy().open()
    assert [await is_accepted(auth, secret) for _, secret in keys] == [False, True, True]
    await new_copy().open()
    assert [await is_accepted(auth, secret) for _, secret in keys] == [False, False, False]
    assert (await database.read(read_head))[0] == 9


async def test_replicas_that_start_at_the_same_time_apply_each_event_once(
    auth: AuthService,
    copy: AuditCopy,
    new_copy: NewCopy,
    database: Database,
    database_url: str,
    log: Log,
    folder: Folder,
) -> None:
    keys = [await new_key(auth) for _ in range(5)]
    await copy_all(copy)
    backup = Backup(database)
    for key_id, _ in keys:
        await revoke(auth, key_id)
    await copy_all(copy)
    backup.restore()
    other = Database(database_url, "auth")
    try:
        await asyncio.gather(new_copy().open(), AuditCopy(other, auth.parts.audit, folder, log).open())
    finally:
        other.close()
    assert not any([await is_accepted(auth, secret) for _, secret in keys])
    assert (await database.read(read_head))[0] == 15
    assert (await database.read(auth.parts.audit.verify))[1] == []


async def test_what_is_done_to_a_restored_database_before_the_replay_is_noticed(
    auth: AuthService, copy: AuditCopy, new_copy: NewCopy, database: Database, folder: Folder
) -> None:
    (key_id, _), (other_id, _) = await new_key(auth), await new_key(auth)
    await copy_all(copy)
    backup = Backup(database)
    await revoke(auth, key_id)
    await copy_all(copy)
    backup.restore()
    # By a replica that kept running: its own copy then stops, rather than fork.
    await revoke(auth, other_id)
    await revoke(auth, other_id)
    with pytest.raises(CopyBroken, match=r"event 6 .* not the event that the copy has before it"):
        await copy.copy_segment()
    with pytest.raises(CopyBroken, match=r"LEGATO_AUDIT_COPY: event 5 .* the database has another event in its place"):
        await new_copy().open()
    assert event_nos(folder) == [1, 2, 3, 4, 5]


async def damage(folder: Folder, name: str, change: Callable[[bytes], bytes]) -> None:
    content = folder.get(name)
    folder.delete(name)
    folder.put(name, change(content))


async def restored_with_copy(auth: AuthService, copy: AuditCopy, database: Database, folder: Folder) -> list[str]:
    """Revokes two keys after a backup, each in a segment of its own, and restores it; returns all segments."""
    (key_id, _), (other_id, _) = await new_key(auth), await new_key(auth)
    await copy_all(copy)
    backup = Backup(database)
    for revoked_id in (key_id, other_id):
        await revoke(auth, revoked_id)
        await copy_all(copy)
    backup.restore()
    return folder.list()


@pytest.mark.parametrize(
    ("segment", "change", "told"),
    [
        (1, lambda content: content.replace(b"key.revoked", b"key.renamed"), "event 5 .* not written with a pepper"),
        (1, lambda content: content[: len(content) // 2], "event 5 .* its segment is damaged"),
        (1, lambda content: b"", "event 5 .* its segment is damaged"),
        (1, None, "event 6 .* does not follow the event before it"),
        (0, None, "event 5 .* another event|is missing: .* event 1"),
    ],
)
async def test_a_copy_that_is_damaged_is_refused_and_nothing_of_it_applied(
    auth: AuthService,
    copy: AuditCopy,
    new_copy: NewCopy,
    database: Database,
    folder: Folder,
    segment: int,
    change: Callable[[bytes], bytes] | None,
    told: str,
) -> None:
    name = (await restored_with_copy(auth, copy, database, folder))[segment]
    if change is None:
        folder.delete(name)
    else:
        await damage(folder, name, change)
    with pytest.raises(CopyBroken, match=f"LEGATO_AUDIT_COPY: .*{told}"):
        await new_copy().open()
    assert (await database.read(read_head))[0] == 4


async def test_a_segment_without_its_last_events_is_refused_though_its_chain_is_whole(
    auth: AuthService, copy: AuditCopy, new_copy: NewCopy, database: Database, folder: Folder
) -> None:
    (key_id, _), (other_id, _) = await new_key(auth), await new_key(auth)
    await copy_all(copy)
    backup = Backup(database)
    await revoke(auth, key_id)
    await revoke(auth, other_id)
    await copy_all(copy)
    backup.restore()
    segment = folder.list()[-1]
    whole = folder.get(segment)
    first, last = whole.splitlines(keepends=True)
    *chained, end = json.loads(last)
    forged = json.dumps([*json.loads(first)[: len(chained)], end]).encode() + b"\n"
    for shortened in (first, forged, first + json.dumps(chained).encode() + b"\n"):
        await damage(folder, segment, lambda content, shortened=shortened: shortened)  # type: ignore[misc]
        with pytest.raises(CopyBroken, match=r"LEGATO_AUDIT_COPY: event 5 .* its segment does not end where it ended"):
            await new_copy().open()
        assert (await database.read(read_head))[0] == 4
    await damage(folder, segment, lambda content: whole)
    await new_copy().open()
    assert (await database.read(read_head))[0] == 6


async def test_last_segments_that_are_gone_are_missed_on_the_machine_that_wrote_them(
    auth: AuthService, database: Database, folder: Folder, log: Log, tmp_path: Path
) -> None:
    def new_copy() -> AuditCopy:
        return AuditCopy(database, auth.parts.audit, folder, log, CopyEnd(tmp_path))

    copy = new_copy()
    await copy.open()
    *_, last = await restored_with_copy(auth, copy, database, folder)
    content = folder.get(last)
    folder.delete(last)
    with pytest.raises(CopyBroken, match=r"LEGATO_AUDIT_COPY: .* ends with event 5, .* up to event 6"):
        await new_copy().open()
    # Put back, or given up by an operator.
    folder.put(last, content)
    await new_copy().open()
    assert (await database.read(read_head))[0] == 6
    folder.delete(last)
    (tmp_path / "audit-copy-end.json").unlink()
    await database.write(forget_copy)
    await new_copy().open()


async def test_files_of_others_beside_the_segments_are_told(
    auth: AuthService, copy: AuditCopy, new_copy: NewCopy, folder: Folder
) -> None:
    await new_key(auth)
    await copy_all(copy)
    folder.put("audit-events/notes of Ada.txt", b"x")
    with pytest.raises(CopyBroken, match="notes of Ada"):
        await new_copy().open()


async def test_a_copy_that_is_lost_is_missed_until_an_operator_says_so(
    auth: AuthService, copy: AuditCopy, new_copy: NewCopy, database: Database, folder: Folder
) -> None:
    await new_key(auth)
    await copy_all(copy)
    await new_key(auth)
    await copy_all(copy)
    for name in folder.list():
        folder.delete(name)
    with pytest.raises(CopyBroken, match=r"LEGATO_AUDIT_COPY_LOST_AFTER=3$"):
        await new_copy().open()
    with pytest.raises(CopyBroken):
        await new_copy().open(lost_after=1)
    anew = new_copy()
    await anew.open(lost_after=3)
    await copy_all(anew)
    assert event_nos(folder) == [1, 2, 3, 4]
    # A setting that was left does not make a later loss pass.
    await new_copy().open(lost_after=3)
    for name in folder.list():
        folder.delete(name)
    with pytest.raises(CopyBroken, match=r"LEGATO_AUDIT_COPY_LOST_AFTER=1$"):
        await new_copy().open(lost_after=3)


async def test_a_copy_of_another_service_is_refused(
    auth: AuthService, copy: AuditCopy, database: Database, folder: Folder, log: Log, clock: FakeClock, sleep: FakeSleep
) -> None:
    await restored_with_copy(auth, copy, database, folder)
    stranger = AuthService(database, Peppers({1: b"another pepper, of 32 bytes as well"}), clock, log, sleep)
    with pytest.raises(CopyBroken, match="not written with a pepper in LEGATO_KEY_PEPPERS"):
        await AuditCopy(database, stranger.parts.audit, folder, log).open()


async def test_the_copy_has_ids_alone(auth: AuthService, console: Console, copy: AuditCopy, folder: Folder) -> None:
    account_id = await console.create_account()
    made = await console.create_user(account_id, email="ada@example.ca")
    signed_in = await console.use_link(made.code)
    _, secret = await new_key(auth, account_id)
    await copy_all(copy)
    content = b"".join(folder.get(name) for name in folder.list()).decode()
    assert made.user.user_id in content
    for hidden in ("ada@example.ca", "Ada", "Acme", "192.0.2.77", made.code, signed_in.session_token, secret):
        assert hidden not in content
