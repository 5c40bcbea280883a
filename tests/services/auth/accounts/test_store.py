from dataclasses import replace

import sqlalchemy as sa

from services.auth.accounts.store import change_account, list_accounts
from services.auth.core.paging import Position
from tests.services.auth.rows import ACCOUNT, add_account, epoch_of


def test_lists_go_from_old_to_new_and_on_behind_a_position(writing: sa.Connection) -> None:
    ages = [("acct_c", 1), ("acct_b", 2), ("acct_d", 2), ("acct_a", 3)]
    for account_id, created_at_us in reversed(ages):
        add_account(writing, replace(ACCOUNT, account_id=account_id, created_at_us=created_at_us))
    everyone = list_accounts(writing, None, 10)
    assert [(account.account_id, account.created_at_us) for account in everyone] == ages
    assert list_accounts(writing, Position(2, "acct_b"), 10) == everyone[2:]
    assert list_accounts(writing, Position(1, "acct_c"), 2) == everyone[1:3]


def test_change_of_an_account_to_what_it_was_leaves_the_epoch(writing: sa.Connection) -> None:
    add_account(writing)
    assert change_account(writing, ACCOUNT.account_id, lambda account: account) == ACCOUNT
    assert epoch_of(writing) == 1
