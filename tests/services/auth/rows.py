"""Accounts and keys as the tests of the store write them."""

from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from services.auth.accounts.store import change_account
from services.auth.core import key_format
from services.auth.core.peppers import Peppers
from services.auth.core.records.accounts import Account
from services.auth.core.store import add
from services.auth.keys.records import Key, Scope
from services.auth.keys.store import keys as stored_keys

ACCOUNT = Account("acct_a", "Acme", 1_000, "forte")


def add_account(connection: sa.Connection, account: Account = ACCOUNT) -> Account:
    add(connection, account)
    return account


def add_key(
    connection: sa.Connection,
    peppers: Peppers,
    account_id: str = ACCOUNT.account_id,
    at_us: int = 2_000,
    **others: Any,
) -> Key:
    secret = key_format.mint()
    digest = peppers.digest(secret)
    key = Key(
        secret.key_id,
        account_id,
        "laptop",
        (Scope.INFERENCE, Scope.MODELS),
        at_us,
        at_us + 10,
        None,
        digest.pepper_version,
    )
    key = replace(key, **others)
    stored_keys.add_key(connection, key, digest)
    return key


def revoke(connection: sa.Connection, key_id: str, now_us: int) -> Key | None:
    key = stored_keys.lock_key(connection, key_id)
    revoked = replace(key, revoked_at_us=key.revoked_at_us or now_us) if key else None
    if key and revoked:
        stored_keys.put_key(connection, key, revoked)
    return revoked


def suspend(connection: sa.Connection, at_us: int | None = 5) -> None:
    change_account(connection, ACCOUNT.account_id, partial(replace, suspended_at_us=at_us))


def epoch_of(connection: sa.Connection) -> int:
    return stored_keys.find_holder(connection, "key_unknown")[1]
