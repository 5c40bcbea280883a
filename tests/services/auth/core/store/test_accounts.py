from dataclasses import replace

import sqlalchemy as sa

from services.auth.core.records.accounts import Account, KeyLimits
from services.auth.core.store import get
from tests.services.auth.rows import ACCOUNT, add_account


def test_account_is_found_as_it_was_added(writing: sa.Connection) -> None:
    account = add_account(
        writing, replace(ACCOUNT, name="Łódź 🎹", limits=KeyLimits(1_000_000, None, 7), suspended_at_us=5)
    )
    assert get(writing, Account, account.account_id) == account
    assert get(writing, Account, "acct_other") is None
