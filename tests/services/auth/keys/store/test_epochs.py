"""The keys that changed since an epoch, and those of them refused."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
import sqlalchemy as sa

from services.auth.accounts.store import change_account
from services.auth.core.peppers import Peppers
from services.auth.core.records.accounts import Account, KeyLimits
from services.auth.core.store import get
from services.auth.keys.records import Changes, Key
from services.auth.keys.store import epochs
from services.auth.keys.store import keys as stored_keys
from services.chassis.database.database import Database
from tests.services.auth.rows import ACCOUNT, add_account, add_key, epoch_of, revoke, suspend


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
    changed = change_account(
        writing, ACCOUNT.account_id, lambda account: replace(account, preferred_class="mezzo", limits=KeyLimits(9))
    )
    assert changed == get(writing, Account, ACCOUNT.account_id)
    assert changed == replace(ACCOUNT, preferred_class="mezzo", limits=KeyLimits(9))
    changes = epochs.changes_since(writing, before)
    assert (changes.epoch, set(changes.key_ids), changes.has_gap) == (before + 1, mine, False)


def test_key_that_changed_twice_is_listed_once(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    key = add_key(writing, peppers)
    before = epoch_of(writing)
    change_account(writing, ACCOUNT.account_id, lambda account: replace(account, preferred_class="mezzo"))
    revoke(writing, key.key_id, 77)
    assert epochs.changes_since(writing, before) == Changes(before + 2, (key.key_id,), (key.key_id,))


@pytest.fixture
def low_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds themselves take thousands of rows."""
    monkeypatch.setattr(epochs, "HISTORY_EPOCHS", 20)
    monkeypatch.setattr(epochs, "LISTED_KEYS_MOST", 30)


@pytest.mark.usefixtures("low_bounds")
def test_history_is_bounded_and_what_fell_out_of_it_is_a_gap(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    key = add_key(writing, peppers)
    before = epoch_of(writing)
    for rate in range(1, epochs.HISTORY_EPOCHS + 2):
        change_account(writing, ACCOUNT.account_id, partial(replace, limits=KeyLimits(rate)))
    now = before + epochs.HISTORY_EPOCHS + 1
    assert epochs.changes_since(writing, before) == Changes(now, has_gap=True)
    assert epochs.changes_since(writing, before + 1) == Changes(now, (key.key_id,))
    kept = writing.execute(sa.text("SELECT count(*) FROM key_changes")).scalar_one()
    assert kept == epochs.HISTORY_EPOCHS


@pytest.mark.usefixtures("low_bounds")
def test_more_keys_than_a_list_holds_are_a_gap(writing: sa.Connection, peppers: Peppers) -> None:
    add_account(writing)
    for _ in range(epochs.LISTED_KEYS_MOST + 1):
        add_key(writing, peppers)
    before = epoch_of(writing)
    change_account(writing, ACCOUNT.account_id, lambda account: replace(account, preferred_class="mezzo"))
    assert epochs.changes_since(writing, before) == Changes(before + 1, has_gap=True)
    assert epochs.changes_since(writing, before + 1) == Changes(before + 1)


@pytest.mark.usefixtures("low_bounds")
def test_lists_that_are_too_long_together_are_a_gap(writing: sa.Connection, peppers: Peppers) -> None:
    before = epoch_of(writing)
    for account_id in ("acct_a", "acct_b"):
        add_account(writing, replace(ACCOUNT, account_id=account_id))
        for _ in range(epochs.LISTED_KEYS_MOST // 2 + 1):
            add_key(writing, peppers, account_id=account_id)
        change_account(writing, account_id, lambda account: replace(account, preferred_class="mezzo"))
    assert epochs.changes_since(writing, before) == Changes(before + 2, has_gap=True)
    assert not epochs.changes_since(writing, before + 1).has_gap


def test_other_peppers_than_before_are_a_gap_and_the_same_ones_are_none(
    writing: sa.Connection, peppers: Peppers
) -> None:
    add_account(writing)
    key = add_key(writing, peppers)
    assert epochs.record_peppers(writing, "1:a")
    before = epoch_of(writing)
    assert not epochs.record_peppers(writing, "1:a")
    assert epoch_of(writing) == before
    assert epochs.record_peppers(writing, "1:a,2:b")
    assert epochs.changes_since(writing, before) == Changes(before + 1, has_gap=True)
    assert epochs.changes_since(writing, before + 1) == Changes(before + 1)
    holder, _ = stored_keys.find_holder(writing, key.key_id)
    assert holder is not None
    assert holder.recorded_peppers == "1:a,2:b"


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
            change_account(connection, ACCOUNT.account_id, lambda account: replace(account, preferred_class="mezzo"))
            adding = thread.submit(add)
            with pytest.raises(TimeoutError):
                adding.result(timeout=0.1)
        key = adding.result(timeout=60)
    with database.transaction(writes=False) as connection:
        holder, _ = stored_keys.find_holder(connection, key.key_id)
        assert holder is not None
        assert holder.preferred_class == "mezzo"


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


def test_epochs_of_a_restored_database_are_above_those_that_callers_have_seen(writing: sa.Connection) -> None:
    epochs.continue_epochs_after_restore(writing, 5_000)
    assert epochs.changes_since(writing, 4_000) == Changes(5_000, has_gap=True)
    # A clock that was set back.
    epochs.continue_epochs_after_restore(writing, 3_000)
    assert epochs.changes_since(writing, 5_000) == Changes(5_001, has_gap=True)
