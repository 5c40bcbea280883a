"""The rows of auth that tests of the console begin with, by what they show: the ids are the same in each test."""

from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa
from argon2 import PasswordHasher

from services.auth.core import codes
from services.auth.core.audit_log import AuditLog
from services.auth.core.peppers import Peppers
from services.auth.core.records.accounts import Account, ClassAllowance, KeyLimits
from services.auth.core.records.audit import Outcome
from services.auth.core.records.users import SignInMethod, User, UserSession
from services.auth.core.store import tables
from services.auth.core.times import hour_of
from services.auth.keys.records import Key, Scope
from services.auth.keys.store import tables as key_tables
from services.auth.notices.records import Channel, Delivery, DeliveryState, Kind, OwnerNotice, Webhook
from services.auth.notices.rules.words import make_notice
from services.auth.notices.store import tables as notice_tables
from services.auth.sign_in.records import Invitation, OidcIdentity, Passkey, Password, Totp
from services.auth.sign_in.rules.totp import STEP_US, CredentialCipher, code_at
from services.auth.sign_in.store import codes as stored_codes
from services.auth.sign_in.store import tables as user_tables
from services.chassis.access_tokens import AccountRole
from services.chassis.changes import Change
from services.chassis.database.records import values_of
from services.chassis.versioned_secrets import parse_versioned_secrets
from tests.console.clock import NOW_US, StandingClock
from tests.console.metering import ACCOUNT_ID, before_us

PEPPER: Final = b"a pepper for tests, 32 bytes long"
PEPPERS: Final = Peppers({1: PEPPER})
ENCRYPTION_KEY: Final = f"1:{'5' * 64}"
USER_ID: Final = "user_1"
MEMBER_ID: Final = "user_2"
EMAIL: Final = "ada@example.ca"
CODE: Final = "K7Q2-M4XD-9PRT-W6HN-3BZC"
INVITATION: Final = "J4RS-8WQX-2MKD-V7TN-5FYA"
RECOVERY_CODES: Final = tuple(f"R3CV-{number:04d}-7QXD-M2KT-9HBN" for number in range(8))
RECOVERY_CODE: Final = RECOVERY_CODES[0]
PASSWORD: Final = "correct horse battery staple"
TOTP_SECRET: Final = b"a secret of 20 bytes"
TOTP_CODE: Final = code_at(TOTP_SECRET, NOW_US // STEP_US)
WEBHOOK_URL: Final = "https://hooks.example.ca/legato?team=billing"
OTHER_ACCOUNT_ID: Final = "acct_0000000000000001"
SUSPENDED_ACCOUNT_ID: Final = "acct_0000000000000004"
OTHER_KEY_ID: Final = "key_0000000000000101"
# Of the accounts that operators see beside the visitor's, and days since they were made.
OTHER_ACCOUNTS: Final = {
    "Menabrea Mills": 85,
    "Difference Machines Ltd.": 70,
    "Bernoulli & Daughters": 50,
    "Trial of March": 30,
}


def add_records(connection: sa.Connection, table: sa.Table, records: Iterable[Any], **others: Any) -> None:
    """Inserts records, each with the values of `others` columns."""
    connection.execute(table.insert(), [values_of(table, record) | others for record in records])


def key(number: int, name: str, **values: Any) -> Key:
    """Returns a key that the visitor made, unless it is one of Charles Babbage's."""
    created_by = MEMBER_ID if name == "Website chat" else USER_ID
    made: dict[str, Any] = {
        "account_id": ACCOUNT_ID, "scopes": (), "created_at_us": before_us(days=3, minutes=number),
        "expires_at_us": None, "revoked_at_us": None, "pepper_version": 1, "created_by": created_by,
    }  # fmt: skip
    return Key(f"key_{number:016d}", name=name, **made | values)


def used(**span: float) -> int:
    return hour_of(before_us(**span))


def write_account(connection: sa.Connection) -> None:
    """Writes an account with an owner, who has nothing but a link, with a member, and with an invitation."""
    account = Account(
        ACCOUNT_ID, "Analytical Engines", before_us(days=90), "forte", KeyLimits(tokens_per_minute=200_000)
    )
    users = [
        User(USER_ID, "Ada Lovelace", EMAIL, before_us(days=90)),
        User(MEMBER_ID, "Charles Babbage", "charles@example.ca", before_us(days=10)),
    ]
    add_records(connection, tables.accounts, [account])
    add_records(connection, tables.users, users)
    _add_member(connection, ACCOUNT_ID, USER_ID, AccountRole.OWNER, 90)
    _add_member(connection, ACCOUNT_ID, MEMBER_ID, AccountRole.MEMBER, 10)
    write_link(connection)
    on_phone = UserSession(
        "sess_phone", USER_ID, before_us(hours=30), before_us(hours=30), before_us(hours=5), "2001:db8::/48",
        "Safari on iPhone", SignInMethod.LINK,
    )  # fmt: skip
    add_records(connection, tables.sessions, [on_phone], digest=b"the phone's")
    invitation = Invitation(
        "inv_1", ACCOUNT_ID, "grace@example.ca", AccountRole.MEMBER, MEMBER_ID, before_us(days=1), before_us(days=-6)
    )
    digest = PEPPERS.digest_code(codes.INVITATION, codes.plain(INVITATION))
    add_records(connection, user_tables.invitations, [invitation], digest=digest)


def write_link(connection: sa.Connection) -> None:
    digest = PEPPERS.digest_code(codes.LINK, codes.plain(CODE))
    stored_codes.put_link(connection, USER_ID, digest, before_us(days=-6))


def write_recovery_codes(connection: sa.Connection) -> None:
    digests = [PEPPERS.digest_code(codes.RECOVERY, codes.plain(code)) for code in RECOVERY_CODES]
    stored_codes.put_recovery_codes(connection, USER_ID, digests, before_us(days=80))


def write_use(connection: sa.Connection) -> None:
    """Writes keys in every state, passkeys, recovery codes and a log."""
    keys = (
        key(1, "Nightly report", last_used_hour_us=used(hours=3), limits=KeyLimits(requests_per_minute=60)),
        key(
            2, "Website chat", scopes=(Scope.INFERENCE,), last_used_hour_us=used(hours=1),
            expires_at_us=before_us(days=-9), allowed_classes=ClassAllowance(("mezzo", "forte")),
        ),
        key(3, "Old laptop", created_at_us=before_us(days=200), last_used_hour_us=used(days=120)),
        key(
            4, "Contractor", created_at_us=before_us(days=210), revoked_at_us=before_us(days=2),
            last_used_hour_us=used(days=2),
        ),
        key(5, "Trial", created_at_us=before_us(days=220), expires_at_us=before_us(days=20)),
    )  # fmt: skip
    add_records(connection, key_tables.keys, keys, digest=b"")
    passkeys = (
        Passkey("pk_1", USER_ID, b"1", b"", 0, "localhost", "Work laptop", False, before_us(days=80), used(hours=5)),
        Passkey("pk_2", USER_ID, b"2", b"", 0, "localhost", "Phone", True, before_us(days=12)),
    )
    add_records(connection, user_tables.passkeys, passkeys)
    write_recovery_codes(connection)
    key_id = "key_0000000000000001"
    events: tuple[tuple[str, str, tuple[Change, ...]], ...] = (
        ("session.stepped_up", "", ()),
        ("passkey.added", "pk_1", ()),
        ("key.created", key_id, (Change("scopes", None, ("inference", "models")),)),
        ("key.updated", key_id, (Change("requests_per_minute", None, 60), Change("allowed_classes", None, ("mezzo",)))),
        ("spend_limits.changed", key_id, (Change("spend_day_nanos", 5 * 10**9, 10 * 10**9),)),
        # As of release 0.2, without its changes.
        ("account.updated", ACCOUNT_ID, ()),
        ("user.signed_in.passkey", "pk_1#4", ()),
    )
    for number, (action, object_id, changes) in enumerate(events):
        refused = Outcome.REFUSED if number == 0 else Outcome.DONE
        account_id = "" if action.startswith(("session", "passkey", "user")) else ACCOUNT_ID
        _append_event(connection, action, 28 - 4 * number, account_id, object_id, outcome=refused, changes=changes)


def write_credentials(connection: sa.Connection, issuer: str) -> None:
    """Writes a password, an authenticator app and an identity of the visitor."""
    set_at_us = before_us(days=40)
    # As weak as it can be: it is compared in many tests.
    hashed = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
    add_records(connection, user_tables.passwords, [Password(USER_ID, hashed, set_at_us)])
    cipher = CredentialCipher(parse_versioned_secrets("a key", ENCRYPTION_KEY))
    add_records(connection, user_tables.totp, [Totp(USER_ID, cipher.encrypt(TOTP_SECRET, USER_ID), 0, set_at_us)])
    identity = OidcIdentity("idn_1", USER_ID, issuer, "subject-1", before_us(days=9), used(hours=2))
    add_records(connection, user_tables.oidc_identities, [identity])


def write_service(connection: sa.Connection) -> None:
    """Writes what operators see beside the visitor's account."""
    accounts = [
        Account(
            f"acct_{number:016d}", name, before_us(days=days), "forte",
            KeyLimits(requests_per_minute=600 if number == 1 else None),
            before_us(days=2) if number == len(OTHER_ACCOUNTS) else None,
        )
        for number, (name, days) in enumerate(OTHER_ACCOUNTS.items(), start=1)
    ]  # fmt: skip
    add_records(connection, tables.accounts, accounts)
    keys = [
        key(
            100 + number, name, account_id=OTHER_ACCOUNT_ID, created_by=MEMBER_ID, created_at_us=before_us(days=40),
            last_used_hour_us=used(hours=number), revoked_at_us=before_us(days=1) if number == 3 else None,
        )
        for number, name in enumerate(("Website chat", "Nightly report", "Old laptop"), start=1)
    ]  # fmt: skip
    add_records(connection, key_tables.keys, keys, digest=b"")
    grace = User("user_3", "Grace Hopper", "grace@example.ca", before_us(days=5), disabled_at_us=before_us(days=1))
    add_records(connection, tables.users, [grace])
    for user_id in (MEMBER_ID, grace.user_id):
        _add_member(connection, OTHER_ACCOUNT_ID, user_id, AccountRole.OWNER, 5)
    for hours, (action, object_id) in zip(
        range(20, -1, -5),
        (
            ("user.created", grace.user_id),
            ("key.revoked", "key_0000000000000103"),
            ("user.made_operator", USER_ID),
            ("account.suspended", SUSPENDED_ACCOUNT_ID),
            ("credit.grant_requested", "user_1-6f1b2c"),
        ),
        strict=True,
    ):
        # The first operator is made on the command line.
        is_ours = action != "user.made_operator"
        _append_event(connection, action, hours, OTHER_ACCOUNT_ID if is_ours else "", object_id, is_ours=is_ours)


def write_notices(connection: sa.Connection) -> None:
    """Writes a webhook, a muted kind, and notices in every state."""
    _add_webhook(connection, "whk_0000000000000001", ACCOUNT_ID)
    muted = {"account_id": ACCOUNT_ID, "kind": Kind.SPEND_LIMIT_NEAR.value}
    connection.execute(notice_tables.muted_notices.insert(), [muted])
    told: tuple[tuple[Kind, str, dict[str, Any], DeliveryState], ...] = (
        (Kind.KEY_NEW_NETWORK, "Website chat", {"network": "203.0.113.0/24"}, DeliveryState.PENDING),
        (
            Kind.SPEND_LIMIT_REACHED, "Nightly report", {"period": "day", "limit_usd": "5.00"},
            DeliveryState.FAILED,
        ),
        (Kind.BALANCE_LOW, "", {"balance_usd": "24.87", "threshold_usd": "25.00"}, DeliveryState.DELIVERED),
    )  # fmt: skip
    for number, (kind, key_name, data, state) in enumerate(told, start=1):
        notice = make_notice(f"ntc_{number}", ACCOUNT_ID, kind, "", key_name, data, before_us(days=number))
        is_done = state is DeliveryState.DELIVERED
        by_webhook = Delivery(
            f"dlv_{number}a", notice.notice_id, Channel.WEBHOOK, "whk_0000000000000001", state,
            1 if is_done else 3 * number, "" if is_done else "HTTP 503", before_us(hours=number), before_us(days=-1),
        )  # fmt: skip
        by_mail = Delivery(f"dlv_{number}b", notice.notice_id, Channel.MAIL, USER_ID, DeliveryState.DELIVERED, 1)
        _add_notice(connection, notice, by_webhook, by_mail)
    data = {"expires_at": "2026-10-08T15:00:00Z"}
    _add_notice(
        connection, make_notice("ntc_9", ACCOUNT_ID, Kind.KEY_EXPIRES_SOON, "", "Trial", data, before_us(days=60))
    )


def write_dead_letters(connection: sa.Connection) -> None:
    """Writes notices of another account that neither its webhook nor its owner got."""
    _add_webhook(connection, "whk_0000000000000009", OTHER_ACCOUNT_ID)
    for number in range(12):
        notice = make_notice(f"ntc_dead_{number}", OTHER_ACCOUNT_ID, Kind.TEST, "", "", {}, before_us(hours=2))
        by_webhook = Delivery(
            f"dlv_dead_{number}", notice.notice_id, Channel.WEBHOOK, "whk_0000000000000009", DeliveryState.FAILED, 9,
            "HTTP 503", before_us(hours=2),
        )  # fmt: skip
        by_mail = Delivery(
            "dlv_dead_mail", notice.notice_id, Channel.MAIL, MEMBER_ID, DeliveryState.FAILED, 9,
            "the owner has no address", before_us(days=3),
        )  # fmt: skip
        _add_notice(connection, notice, by_webhook, *([by_mail] if number == 0 else []))


def _add_webhook(connection: sa.Connection, webhook_id: str, account_id: str) -> None:
    webhook = Webhook(webhook_id, account_id, WEBHOOK_URL, "whsec_of_a_test", before_us(days=40))
    add_records(connection, notice_tables.webhooks, [webhook])


def _add_notice(connection: sa.Connection, notice: OwnerNotice, *deliveries: Delivery) -> None:
    add_records(connection, notice_tables.notices, [notice])
    if deliveries:
        add_records(connection, notice_tables.notice_deliveries, deliveries)


def _add_member(connection: sa.Connection, account_id: str, user_id: str, role: AccountRole, days: int) -> None:
    row = {"account_id": account_id, "user_id": user_id, "role": role, "joined_at_us": before_us(days=days)}
    connection.execute(tables.memberships.insert(), [row])


def _append_event(
    connection: sa.Connection, action: str, hours: float, account_id: str, object_id: str, *,
    is_ours: bool = True, outcome: Outcome = Outcome.DONE, changes: Iterable[Change] = (),
) -> None:  # fmt: skip
    """Appends an event to the audit log: of the visitor, or of the command line."""
    AuditLog(PEPPERS, StandingClock()).append(
        connection, action, account_id=account_id, object_id=object_id, user_id=USER_ID if is_ours else "",
        network="192.0.2.0/24" if is_ours else "", outcome=outcome, changes=changes,
        occurred_at_us=before_us(hours=hours),
    )  # fmt: skip
