from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import sqlalchemy as sa

from services.auth.core import key_format
from services.auth.core.paging import Position
from services.auth.core.peppers import Peppers
from services.auth.core.records.accounts import KeyLimits
from services.auth.core.times import HOUR_US
from services.auth.keys.records import Changes, Key, PepperUse, Scope
from services.auth.keys.store import epochs
from services.auth.keys.store import keys as stored_keys
from services.auth.keys.store.keys import KeyChoice
from services.chassis.database.database import Database
from tests.services.auth.rows import ACCOUNT, add_account, add_key, epoch_of, revoke, suspend


def test_holder_has_the_key_its_digest_and_what_its_account_decided(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing, replace(ACCOUNT, preferred_class="mezzo", limits=KeyLimits(7, 8, None)))
    secret = key_format.mint()
    key = Key(secret.key_id, ACCOUNT.account_id, "laptop", (Scope.USAGE,), 5, None, None, pepper_version=1)
    stored_keys.add_key(writing, key, peppers.digest(secret))
    holder, epoch = stored_keys.find_holder(writing, key.key_id)
    assert holder is not None
    assert (holder.key, holder.digest) == (key, peppers.digest(secret))
    assert (holder.preferred_class, holder.limits, holder.is_suspended) == ("mezzo", KeyLimits(7, 8, None), False)
    assert epoch == epoch_of(writing)


def test_unknown_key_has_no_holder_but_an_epoch(writing: sa.Connection) -> None:
    assert stored_keys.find_holder(writing, "key_unknown") == (None, 1)


def test_list_of_keys_holds_those_of_the_account_alone(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    add_account(writing, replace(ACCOUNT, account_id="acct_b"))
    mine = [add_key(writing, peppers, at_us=at_us) for at_us in (1, 2, 3)]
    add_key(writing, peppers, account_id="acct_b")
    assert stored_keys.list_keys(writing, ACCOUNT.account_id, None, 10) == mine
    assert stored_keys.list_keys(writing, ACCOUNT.account_id, Position(1, mine[0].key_id), 1) == mine[1:2]


def test_keys_are_found_by_a_part_of_their_name_or_the_beginning_of_their_id(
    writing: sa.Connection, peppers: Peppers
) -> None:
    add_account(writing)
    names = ("Nightly build", "100%_sure!", "build", "Laptop")
    made = {name: add_key(writing, peppers, at_us=at_us, name=name) for at_us, name in enumerate(names)}

    def found(search: str) -> list[str]:
        listed = stored_keys.list_keys(writing, ACCOUNT.account_id, None, 10, KeyChoice(search=search))
        return [key.name for key in listed or ()]

    assert found("BUILD") == ["Nightly build", "build"]
    # What LIKE has a meaning for is searched for as it is.
    for part in ("0%", "%_", "!", "_sure"):
        assert found(part) == ["100%_sure!"], part
    assert found(made["Laptop"].key_id[:-1].upper()) == ["Laptop"]
    assert found("absent") == []


def test_keys_are_listed_from_either_end_and_by_state_and_maker(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    plain, revoked, expired, own = (
        add_key(writing, peppers, at_us=1, expires_at_us=None),
        add_key(writing, peppers, at_us=2, expires_at_us=None),
        add_key(writing, peppers, at_us=3, expires_at_us=50),
        add_key(writing, peppers, at_us=4, expires_at_us=None, created_by="user_a"),
    )
    revoke(writing, revoked.key_id, 9)

    def listed(choice: KeyChoice, after: Key | None = None) -> list[str]:
        position = Position(after.created_at_us, after.key_id) if after else None
        found = stored_keys.list_keys(writing, ACCOUNT.account_id, position, 10, choice)
        return [key.key_id for key in found or ()]

    assert listed(KeyChoice(newest_first=True)) == [each.key_id for each in (own, expired, revoked, plain)]
    assert listed(KeyChoice(newest_first=True), own) == [each.key_id for each in (expired, revoked, plain)]
    assert listed(KeyChoice(active_at_us=50)) == [plain.key_id, own.key_id]
    assert listed(KeyChoice(active_at_us=49)) == [plain.key_id, expired.key_id, own.key_id]
    assert listed(KeyChoice(created_by="user_a")) == [own.key_id]


def test_keys_are_listed_by_how_long_they_were_not_used(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    for name, created_at_us, used_at_us in (
        ("idle", 0, 9 * HOUR_US),
        # Until the end of its hour it may have been used.
        ("used", 1, 10 * HOUR_US),
        ("never", 10 * HOUR_US, None),
        ("new", 11 * HOUR_US + 1, None),
    ):
        key = add_key(writing, peppers, at_us=created_at_us, name=name)
        if used_at_us is not None:
            stored_keys.record_uses(writing, [key.key_id], used_at_us)

    def listed(choice: KeyChoice) -> list[str]:
        return [key.name for key in stored_keys.list_keys(writing, ACCOUNT.account_id, None, 10, choice)]

    assert listed(KeyChoice(never_used=True)) == ["never", "new"]
    assert listed(KeyChoice(unused_since_us=10 * HOUR_US)) == ["idle", "never"]
    assert listed(KeyChoice(unused_since_us=11 * HOUR_US)) == ["idle", "used", "never"]


def test_limits_of_a_key_stand_before_those_of_its_account(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing, replace(ACCOUNT, limits=KeyLimits(10, 20, None)))
    key = add_key(writing, peppers)
    before = epoch_of(writing)
    changed = replace(key, limits=KeyLimits(None, 2, 3))
    stored_keys.put_key(writing, key, changed)
    holder, epoch = stored_keys.find_holder(writing, key.key_id)
    assert holder is not None
    assert (holder.key, holder.limits, epoch) == (changed, KeyLimits(10, 2, 3), before + 1)
    assert epochs.changes_since(writing, before) == Changes(before + 1, (key.key_id,))


def test_holder_knows_that_its_account_is_suspended(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    key = add_key(writing, peppers)
    suspend(writing)
    holder, _ = stored_keys.find_holder(writing, key.key_id)
    assert holder is not None
    assert holder.is_suspended


def last_uses(connection: sa.Connection) -> dict[str, int | None]:
    listed = stored_keys.list_keys(connection, ACCOUNT.account_id, None, 10)
    return {key.key_id: key.last_used_hour_us for key in listed or ()}


def test_last_use_only_moves_forward_and_leaves_the_epoch(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    used, unused = [add_key(writing, peppers).key_id for _ in range(2)]
    before = epoch_of(writing)
    for hour_us in (2, 3, 1):
        stored_keys.record_uses(writing, [used, "key_unknown"], hour_us)
    assert last_uses(writing) == {used: 3, unused: None}
    assert epoch_of(writing) == before


def test_replicas_that_note_the_same_keys_at_once_do_not_deadlock(database: Database, peppers: Peppers) -> None:
    with database.transaction(writes=True) as connection:
        add_account(connection)
        key_ids = [add_key(connection, peppers).key_id for _ in range(8)]

    def record(hour_us: int) -> None:
        ordered = key_ids if hour_us % 2 else key_ids[::-1]
        with database.transaction(writes=True) as connection:
            stored_keys.record_uses(connection, ordered, hour_us)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(record, range(1, 41)))
    with database.transaction(writes=False) as connection:
        assert set(last_uses(connection).values()) == {40}


def test_keys_that_still_work_are_counted_by_the_pepper_they_need(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    both = Peppers({1: b"a pepper for tests, 32 bytes long", 2: b"another pepper for tests: 32 bytes"})
    for at_us in (1_000, 1_000, 900, 1):
        add_key(writing, peppers, at_us=at_us)
    revoked = add_key(writing, peppers, at_us=1_000)
    revoke(writing, revoked.key_id, 1_001)
    newer = add_key(writing, both, at_us=1_000)
    stored_keys.record_uses(writing, [newer.key_id], 7)
    assert stored_keys.count_by_pepper(writing, 909) == [PepperUse(1, 3, None), PepperUse(2, 1, 7)]
    assert stored_keys.count_by_pepper(writing, 1_005) == [PepperUse(1, 2, None), PepperUse(2, 1, 7)]
