from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from services.auth import keys
from services.auth.keys import Peppers
from services.auth.records import Account, Changes, Key, Limits, PepperUse, Position, Scope
from services.auth.service import MIGRATIONS
from services.auth.store import accounts as stored_accounts
from services.auth.store import epochs
from services.auth.store import keys as stored_keys
from services.auth.store.tables import metadata
from services.chassis.database import Database

ACCOUNT = Account("acct_a", "Acme", 1_000, "forte")


@pytest.fixture
def writing(database: Database) -> Iterator[sa.Connection]:
    with database.transaction(writes=True) as connection:
        yield connection


def add_account(connection: sa.Connection, account: Account = ACCOUNT) -> Account:
    stored_accounts.add_account(connection, account)
    return account


def add_key(
    connection: sa.Connection, peppers: Peppers, account_id: str = ACCOUNT.account_id, at_us: int = 2_000
) -> Key:
    secret = keys.mint()
    key = Key(
        secret.key_id, account_id, "laptop", (Scope.INFERENCE, Scope.MODELS), at_us, at_us + 10, None, pepper_version=1
    )
    assert stored_keys.add_key(connection, key, peppers.digest(secret))
    return key


def revoke(connection: sa.Connection, key_id: str, now_us: int) -> Key | None:
    return stored_keys.change_key(
        connection, key_id, lambda key: replace(key, revoked_at_us=key.revoked_at_us or now_us)
    )


def suspend(connection: sa.Connection, at_us: int | None = 5) -> None:
    assert stored_accounts.change_account(connection, ACCOUNT.account_id, partial(replace, suspended_at_us=at_us))


def epoch_of(connection: sa.Connection) -> int:
    return stored_keys.find_holder(connection, "key_unknown")[1]


def test_migrations_make_the_tables_that_the_store_uses(database: Database) -> None:
    with database.transaction(writes=False) as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_migrating_again_keeps_what_is_there(database: Database) -> None:
    with database.transaction(writes=True) as connection:
        add_account(connection)
    database.migrate(MIGRATIONS)
    with database.transaction(writes=False) as connection:
        assert stored_accounts.find_account(connection, ACCOUNT.account_id) == ACCOUNT


def test_account_is_found_as_it_was_added(writing: sa.Connection) -> None:
    account = add_account(
        writing, replace(ACCOUNT, name="Łódź 🎹", limits=Limits(1_000_000, None, 7), suspended_at_us=5)
    )
    assert stored_accounts.find_account(writing, account.account_id) == account
    assert stored_accounts.find_account(writing, "acct_other") is None


def test_holder_has_the_key_its_digest_and_what_its_account_decided(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing, replace(ACCOUNT, preferred_class="mezzo", limits=Limits(7, 8, None)))
    secret = keys.mint()
    key = Key(secret.key_id, ACCOUNT.account_id, "laptop", (Scope.USAGE,), 5, None, None, pepper_version=1)
    stored_keys.add_key(writing, key, peppers.digest(secret))
    holder, epoch = stored_keys.find_holder(writing, key.key_id)
    assert holder is not None
    assert (holder.key, holder.digest) == (key, peppers.digest(secret))
    assert (holder.preferred_class, holder.limits, holder.is_suspended) == ("mezzo", Limits(7, 8, None), False)
    assert epoch == epoch_of(writing)


def test_unknown_key_has_no_holder_but_an_epoch(writing: sa.Connection) -> None:
    assert stored_keys.find_holder(writing, "key_unknown") == (None, 1)


def test_key_of_an_unknown_account_is_not_added(writing: sa.Connection, peppers: Peppers) -> None:
    secret = keys.mint()
    key = Key(secret.key_id, "acct_other", "laptop", (), 5, None, None, pepper_version=1)
    assert not stored_keys.add_key(writing, key, peppers.digest(secret))
    assert stored_keys.find_holder(writing, key.key_id)[0] is None


def test_lists_go_from_old_to_new_and_on_behind_a_position(writing: sa.Connection) -> None:
    ages = [("acct_c", 1), ("acct_b", 2), ("acct_d", 2), ("acct_a", 3)]
    for account_id, created_at_us in reversed(ages):
        add_account(writing, replace(ACCOUNT, account_id=account_id, created_at_us=created_at_us))
    everyone = stored_accounts.list_accounts(writing, None, 10)
    assert [(account.account_id, account.created_at_us) for account in everyone] == ages
    assert stored_accounts.list_accounts(writing, Position(2, "acct_b"), 10) == everyone[2:]
    assert stored_accounts.list_accounts(writing, Position(1, "acct_c"), 2) == everyone[1:3]


def test_list_of_keys_holds_those_of_the_account_alone(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    add_account(writing, replace(ACCOUNT, account_id="acct_b"))
    mine = [add_key(writing, peppers, at_us=at_us) for at_us in (1, 2, 3)]
    add_key(writing, peppers, account_id="acct_b")
    assert stored_keys.list_keys(writing, ACCOUNT.account_id, None, 10) == mine
    assert stored_keys.list_keys(writing, ACCOUNT.account_id, Position(1, mine[0].key_id), 1) == mine[1:2]
    assert stored_keys.list_keys(writing, "acct_other", None, 10) is None


def test_new_key_leaves_the_epoch(writing: sa.Connection, peppers: Peppers) -> None:
    before = epoch_of(writing)
    add_account(writing)
    add_key(writing, peppers)
    assert epoch_of(writing) == before


def test_revocation_raises_the_epoch_and_lists_the_key(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    key = add_key(writing, peppers)
    before = epoch_of(writing)
    assert revoke(writing, key.key_id, 77) == replace(key, revoked_at_us=77)
    assert epoch_of(writing) == before + 1
    assert epochs.changes_since(writing, before) == Changes(before + 1, (key.key_id,), (key.key_id,))
    assert epochs.changes_since(writing, before + 1) == Changes(before + 1)


def test_second_revocation_changes_nothing(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    key = add_key(writing, peppers)
    first = revoke(writing, key.key_id, 77)
    epoch = epoch_of(writing)
    assert revoke(writing, key.key_id, 99) == first
    assert epoch_of(writing) == epoch


def test_revocation_of_an_unknown_key_changes_nothing(writing: sa.Connection) -> None:
    assert revoke(writing, "key_unknown", 77) is None
    assert epoch_of(writing) == 1


def test_change_of_an_account_lists_all_of_its_keys(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    add_account(writing, replace(ACCOUNT, account_id="acct_b"))
    mine = {add_key(writing, peppers).key_id for _ in range(3)}
    add_key(writing, peppers, account_id="acct_b")
    before = epoch_of(writing)
    changed = stored_accounts.change_account(
        writing, ACCOUNT.account_id, lambda account: replace(account, preferred_class="mezzo", limits=Limits(9))
    )
    assert changed == stored_accounts.find_account(writing, ACCOUNT.account_id)
    assert changed == replace(ACCOUNT, preferred_class="mezzo", limits=Limits(9))
    changes = epochs.changes_since(writing, before)
    assert (changes.epoch, set(changes.key_ids), changes.has_gap) == (before + 1, mine, False)


def test_change_of_an_account_to_what_it_was_leaves_the_epoch(writing: sa.Connection) -> None:
    add_account(writing)
    assert stored_accounts.change_account(writing, ACCOUNT.account_id, lambda account: account) == ACCOUNT
    assert epoch_of(writing) == 1


def test_change_of_an_unknown_account_is_none(writing: sa.Connection) -> None:
    assert stored_accounts.change_account(writing, "acct_other", lambda account: account) is None


def test_key_that_changed_twice_is_listed_once(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    key = add_key(writing, peppers)
    before = epoch_of(writing)
    stored_accounts.change_account(
        writing, ACCOUNT.account_id, lambda account: replace(account, preferred_class="mezzo")
    )
    revoke(writing, key.key_id, 77)
    assert epochs.changes_since(writing, before) == Changes(before + 2, (key.key_id,), (key.key_id,))


def test_history_is_bounded_and_what_fell_out_of_it_is_a_gap(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    key = add_key(writing, peppers)
    before = epoch_of(writing)
    for rate in range(1, epochs.HISTORY_EPOCHS + 2):
        stored_accounts.change_account(writing, ACCOUNT.account_id, partial(replace, limits=Limits(rate)))
    now = before + epochs.HISTORY_EPOCHS + 1
    assert epochs.changes_since(writing, before) == Changes(now, has_gap=True)
    assert epochs.changes_since(writing, before + 1) == Changes(now, (key.key_id,))
    kept = writing.execute(sa.text("SELECT count(*) FROM key_changes")).scalar_one()
    assert kept == epochs.HISTORY_EPOCHS


def test_more_keys_than_a_list_holds_are_a_gap(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    for _ in range(epochs.LISTED_KEYS_MOST + 1):
        add_key(writing, peppers)
    before = epoch_of(writing)
    stored_accounts.change_account(
        writing, ACCOUNT.account_id, lambda account: replace(account, preferred_class="mezzo")
    )
    assert epochs.changes_since(writing, before) == Changes(before + 1, has_gap=True)
    assert epochs.changes_since(writing, before + 1) == Changes(before + 1)


def test_lists_that_are_too_long_together_are_a_gap(writing: sa.Connection, peppers: Peppers) -> None:
    before = epoch_of(writing)
    for account_id in ("acct_a", "acct_b"):
        add_account(writing, replace(ACCOUNT, account_id=account_id))
        for _ in range(epochs.LISTED_KEYS_MOST // 2 + 1):
            add_key(writing, peppers, account_id=account_id)
        stored_accounts.change_account(writing, account_id, lambda account: replace(account, preferred_class="mezzo"))
    assert epochs.changes_since(writing, before) == Changes(before + 2, has_gap=True)
    assert not epochs.changes_since(writing, before + 1).has_gap


def test_rolled_back_revocation_leaves_no_trace(database: Database, peppers: Peppers) -> None:
    with database.transaction(writes=True) as connection:
        add_account(connection)
        key = add_key(connection, peppers)

    def revoke_and_fail() -> None:
        with database.transaction(writes=True) as connection:
            revoke(connection, key.key_id, 77)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        revoke_and_fail()
    with database.transaction(writes=False) as connection:
        holder, epoch = stored_keys.find_holder(connection, key.key_id)
        assert (holder is not None and holder.key, epoch) == (key, 1)
        assert epochs.changes_since(connection, 0).epoch == 1


def test_revocations_at_once_each_get_an_epoch_of_their_own(database: Database, peppers: Peppers) -> None:
    with database.transaction(writes=True) as connection:
        add_account(connection)
        key_ids = [add_key(connection, peppers).key_id for _ in range(12)]

    def revoke_one(key_id: str) -> None:
        with database.transaction(writes=True) as connection:
            revoke(connection, key_id, 77)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(revoke_one, key_ids))
    with database.transaction(writes=False) as connection:
        changes = epochs.changes_since(connection, 1)
        assert (changes.epoch, set(changes.key_ids)) == (13, set(key_ids))


def test_key_cannot_slip_in_while_its_account_changes(database: Database, peppers: Peppers) -> None:
    """Else it would be missing from the list of the change, and stay cached with what was decided before."""
    with database.transaction(writes=True) as connection:
        add_account(connection)

    def add() -> Key:
        with database.transaction(writes=True) as connection:
            return add_key(connection, peppers)

    with ThreadPoolExecutor(1) as thread:
        with database.transaction(writes=True) as connection:
            stored_accounts.change_account(
                connection, ACCOUNT.account_id, lambda account: replace(account, preferred_class="mezzo")
            )
            adding = thread.submit(add)
            with pytest.raises(TimeoutError):
                adding.result(timeout=0.1)
        key = adding.result(timeout=10)
    with database.transaction(writes=False) as connection:
        holder, _ = stored_keys.find_holder(connection, key.key_id)
        assert holder is not None
        assert holder.preferred_class == "mezzo"


def test_limits_of_a_key_stand_before_those_of_its_account(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing, replace(ACCOUNT, limits=Limits(10, 20, None)))
    key = add_key(writing, peppers)
    before = epoch_of(writing)
    changed = stored_keys.change_key(writing, key.key_id, partial(replace, limits=Limits(None, 2, 3)))
    assert changed == replace(key, limits=Limits(None, 2, 3))
    holder, epoch = stored_keys.find_holder(writing, key.key_id)
    assert holder is not None
    assert (holder.key, holder.limits, epoch) == (changed, Limits(10, 2, 3), before + 1)
    assert epochs.changes_since(writing, before) == Changes(before + 1, (key.key_id,))


def test_suspension_lists_all_keys_of_the_account_as_refused_until_it_is_resumed(
    writing: sa.Connection, peppers: Peppers
) -> None:
    add_account(writing)
    add_account(writing, replace(ACCOUNT, account_id="acct_b"))
    mine = {add_key(writing, peppers).key_id for _ in range(3)}
    add_key(writing, peppers, account_id="acct_b")
    before = epoch_of(writing)
    suspend(writing)
    changes = epochs.changes_since(writing, before)
    assert (set(changes.key_ids), set(changes.refused_key_ids)) == (mine, mine)
    suspend(writing, at_us=None)
    changes = epochs.changes_since(writing, before)
    assert (changes.epoch, set(changes.key_ids), changes.refused_key_ids) == (before + 2, mine, ())


def test_holder_knows_that_its_account_is_suspended(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    key = add_key(writing, peppers)
    suspend(writing)
    holder, _ = stored_keys.find_holder(writing, key.key_id)
    assert holder is not None
    assert holder.is_suspended


def test_revoked_unknown_and_suspended_keys_are_found_among_good_ones(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    add_account(writing, replace(ACCOUNT, account_id="acct_b"))
    suspended = add_key(writing, peppers).key_id
    good, revoked = [add_key(writing, peppers, account_id="acct_b").key_id for _ in range(2)]
    revoke(writing, revoked, 77)
    suspend(writing)
    asked = [good, revoked, suspended, "key_unknown"]
    assert epochs.find_refused_keys(writing, asked) == [revoked, suspended, "key_unknown"]
    assert epochs.find_refused_keys(writing, []) == []


def last_uses(connection: sa.Connection) -> dict[str, int | None]:
    listed = stored_keys.list_keys(connection, ACCOUNT.account_id, None, 10)
    return {key.key_id: key.last_used_hour_us for key in listed or ()}


def test_last_use_only_moves_forward_and_leaves_the_epoch(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    used, unused = [add_key(writing, peppers).key_id for _ in range(2)]
    before = epoch_of(writing)
    for hour_us in (2, 3, 1):
        stored_keys.note_uses(writing, [used, "key_unknown"], hour_us)
    assert last_uses(writing) == {used: 3, unused: None}
    assert epoch_of(writing) == before


def test_replicas_that_note_the_same_keys_at_once_do_not_deadlock(database: Database, peppers: Peppers) -> None:
    with database.transaction(writes=True) as connection:
        add_account(connection)
        key_ids = [add_key(connection, peppers).key_id for _ in range(8)]

    def note(hour_us: int) -> None:
        ordered = key_ids if hour_us % 2 else key_ids[::-1]
        with database.transaction(writes=True) as connection:
            stored_keys.note_uses(connection, ordered, hour_us)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(note, range(1, 41)))
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
    stored_keys.note_uses(writing, [newer.key_id], 7)
    assert stored_keys.count_by_pepper(writing, 909) == [PepperUse(1, 3, None), PepperUse(2, 1, 7)]
    assert stored_keys.count_by_pepper(writing, 1_005) == [PepperUse(1, 2, None), PepperUse(2, 1, 7)]
