"""Auth for the console's tests: its service on a SQLite file, which each test finds as the one before found it."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from legato_protos.metering.v1.spend_limits_pb2_grpc import SpendLimitServiceStub
from legato_protos.type.v1.method_access_pb2 import TokenRule
from services.auth.core import codes
from services.auth.core.encryption import TextCipher, parse_encryption_key
from services.auth.core.records.accounts import Account, KeyLimits
from services.auth.core.records.audit import AuditEvent
from services.auth.core.records.users import SignInMethod, User, UserSession
from services.auth.core.store import tables
from services.auth.core.store.encrypted import encrypt_anew, use_cipher
from services.auth.keys.records import Key
from services.auth.keys.store import tables as key_tables
from services.auth.notices.records import Delivery, Webhook
from services.auth.notices.rules.webhook_client import WebhookClient
from services.auth.notices.store import tables as notice_tables
from services.auth.service import MIGRATIONS, AuthService, ConsoleOptions
from services.auth.sign_in.records import Invitation
from services.auth.sign_in.rules.oidc import OidcClient
from services.auth.sign_in.rules.smtp import MailSender, MailServer
from services.auth.sign_in.store import sessions as stored_sessions
from services.auth.sign_in.store import tables as user_tables
from services.chassis.access_tokens import Access, AccessTokenSigner, AccessTokenVerifier, AccountRole
from services.chassis.database.database import Database
from services.chassis.database.records import RecordT, find_all
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.telemetry.log import Log
from tests.console import auth_rows
from tests.console.auth_rows import ENCRYPTION_KEY, PEPPERS, USER_ID, add_records
from tests.console.clock import NOW, NOW_US, StandingClock
from tests.console.copies import copy_of, restore
from tests.console.metering import ACCOUNT_ID, before_us
from tests.support.outside.mail_box import MailBox, text_of
from tests.support.outside.oidc_issuer import CLIENT_ID, CLIENT_SECRET, FakeIssuer
from tests.support.servers.migrated import migrated_sqlite

SIGNING_KEY: Final = "7" * 64
VERIFIER: Final = AccessTokenVerifier("", AccessTokenSigner(SIGNING_KEY))
# What the issuer is called on pages: its host.
ISSUER_HOST: Final = "127.0.0.1"
SENDER: Final = "Legato <no-reply@example.ca>"
# What auth makes, wherever it stands in a text.
CODE_PATTERN: Final = re.compile(r"\b[0-9A-Z]{4}(?:-[0-9A-Z]{4}){4}\b")
KEY_PATTERN: Final = re.compile(r"\bsk-legato-\w{55}\b")
TOKEN_PATTERN: Final = re.compile(r"\bpt-legato-\w{55}\b")
WEBHOOK_SECRET_PATTERN: Final = re.compile(r"\bwhsec_[\w-]{43}(?![\w-])")


def only_match(pattern: "re.Pattern[str]", text: str) -> str:
    """Returns what a text has of a kind of secret, however often."""
    [found] = set(pattern.findall(text))
    return str(found)


class Auth:
    """The service and its rows. A test that changes what is offered gets a new service; `on_change` is told so."""

    def __init__(self, folder: Path, origin: str, on_change: Callable[[], None]) -> None:
        self._file = folder / "auth.db"
        self._origin = origin
        self._on_change = on_change
        self.database = Database(migrated_sqlite(self._file, "auth", MIGRATIONS), "auth")
        self._webhook_client = WebhookClient()
        self._service: AuthService | None = None
        self._spend_limits: Any = None
        self._use_cipher("")
        with self._writing() as connection:
            auth_rows.write_account(connection)
        self._new = copy_of(self._file)
        self._filled: sqlite3.Connection | None = None
        self._begin()

    def _begin(self) -> None:
        self._ways: frozenset[str] = frozenset()
        self._proved_us = NOW_US
        self._sessions = 0
        # Whether nothing was written since the last reset.
        self._is_new = True

    def reset(self) -> None:
        """Leaves an account with an owner and a member, and the owner with a link to sign in with."""
        self._await_mail()
        restore(self._file, self._new)
        self._use_cipher("")
        if "issuer" in vars(self):
            self.issuer.claims = {}
        self._begin()

    def servicers(self, log: Log) -> list[Any]:
        """Returns new ones, which have read nothing yet."""
        self._loop, self._is_new = asyncio.get_running_loop(), False
        has_mail, has_issuer = "mail" in self._ways, "oidc" in self._ways
        console = ConsoleOptions(
            signing_key=SIGNING_KEY,
            origins=self._origin,
            service_limits=KeyLimits(requests_per_minute=3_000),
            encryption_key=ENCRYPTION_KEY if "password" in self._ways else "",
            oidc=OidcClient(self.issuer.issuer, CLIENT_ID, CLIENT_SECRET) if has_issuer else None,
            mail_sender=self._mail_sender if has_mail else None,
            webhook_client=self._webhook_client,
        )
        # Nothing waits until edges have heard of a change: there are none.
        self._service = AuthService(
            self.database, PEPPERS, StandingClock(), log, _no_sleep, console, spend_limits=self._spend_limits
        )
        return self._service.servicers

    async def start(self, metering: str, log: Log) -> None:
        """Opens a channel to metering, which limits what keys may spend."""
        self._metering = ReplicaChannel("Metering", "metering", metering, None, log)
        await self._metering.start()
        self._spend_limits = SpendLimitServiceStub(self._metering.channel)

    async def confirm(self, access: Access, rule: TokenRule) -> Access:
        assert self._service is not None
        return await self._service.sessions.confirm(access, rule)

    async def close(self) -> None:
        if self._service is not None:
            await self._service.close()
        await self._metering.close()
        for outside in ("issuer", "mail_box"):
            if outside in vars(self):
                getattr(self, outside).close()
        self.database.close()

    @cached_property
    def issuer(self) -> FakeIssuer:
        issuer = FakeIssuer()
        issuer.now_s = NOW.timestamp()
        return issuer

    @cached_property
    def mail_box(self) -> MailBox:
        return MailBox()

    @cached_property
    def _mail_sender(self) -> MailSender:
        return MailSender(MailServer("127.0.0.1", self.mail_box.port, False, SENDER))

    def mailed_code(self) -> str:
        """Returns the code that was mailed last."""
        self._await_mail()
        return only_match(CODE_PATTERN, text_of(self.mail_box.messages[-1]))

    def _await_mail(self) -> None:
        if self._service is not None and "mail" in self._ways:
            asyncio.run_coroutine_threadsafe(self._service.mail.written(), self._loop).result(60)

    def offer(self, *ways: str) -> None:
        """Sets up `mail`, `password` or `oidc`."""
        self._ways |= set(ways)
        if "password" in ways:
            cipher = self._use_cipher(ENCRYPTION_KEY)
            with self._writing() as connection:
                encrypt_anew(connection, tables.metadata, cipher)
        self._on_change()

    def offer_everything(self) -> None:
        """Offers all ways to sign in, and gives the user each of them."""
        self.fill()
        self.offer("mail", "password", "oidc")
        with self._writing() as connection:
            auth_rows.write_credentials(connection, self.issuer.issuer)

    def _use_cipher(self, encryption_key: str) -> TextCipher:
        cipher = TextCipher(parse_encryption_key(encryption_key), PEPPERS.derive("email addresses"))
        use_cipher(self.database, cipher)
        return cipher

    def fill(self) -> None:
        """Gives the account keys in every state, and the user passkeys, recovery codes and a log."""
        if self._is_new and self._filled is not None:
            restore(self._file, self._filled)
            self._is_new = False
            return
        was_new = self._is_new
        with self._writing() as connection:
            auth_rows.write_use(connection)
        if was_new:
            self._filled = copy_of(self._file)

    def fill_operator(self) -> None:
        """Adds a few accounts with keys, users and events."""
        with self._writing() as connection:
            auth_rows.write_service(connection)

    def fill_notices(self) -> None:
        """Gives the account a webhook, mail, and notices in every state."""
        self.offer("mail")
        with self._writing() as connection:
            auth_rows.write_notices(connection)

    def fill_dead_letters(self) -> None:
        with self._writing() as connection:
            auth_rows.write_dead_letters(connection)

    def add_keys(self, *keys: Key) -> None:
        with self._writing() as connection:
            add_records(connection, key_tables.keys, keys, digest=b"")

    def add_key(self, name: str, **values: Any) -> Key:
        key = auth_rows.key(len(self.list_keys()) + 1, name, **values)
        self.add_keys(key)
        return key

    def add_recovery_codes(self) -> None:
        with self._writing() as connection:
            auth_rows.write_recovery_codes(connection)

    def remove_recovery_codes(self) -> None:
        self._execute(sa.delete(user_tables.recovery_codes))

    def remove_password(self) -> None:
        for table in (user_tables.passwords, user_tables.totp):
            self._execute(sa.delete(table))

    def put_link(self) -> None:
        """Gives the user another link with the same code."""
        with self._writing() as connection:
            auth_rows.write_link(connection)

    def sign_in(self, token: str = "") -> str:
        """Adds a session of the user, and returns its token."""
        self._sessions += 1
        token = token or f"session-token-{self._sessions:032d}"
        session = UserSession(
            f"sess_{self._sessions}", USER_ID, before_us(hours=2), self._proved_us, NOW_US, "192.0.2.0/24",
            "Firefox on Linux", SignInMethod.PASSKEY,
        )  # fmt: skip
        digest = PEPPERS.digest_code(codes.SESSION, token)
        with self._writing() as connection:
            add_records(connection, tables.sessions, [session], digest=digest)
        return token

    def end_sessions(self) -> None:
        with self._writing() as connection:
            stored_sessions.end_sessions(connection, USER_ID)

    def grow_stale(self) -> None:
        """Lets the user's last proof of who they are be long ago, in all sessions of this test."""
        self._proved_us = before_us(hours=1)
        self._execute(sa.update(tables.sessions).values(authenticated_at_us=self._proved_us))

    def be_operator(self, *, is_operator: bool = True) -> None:
        self.change_user(is_operator=is_operator)

    def set_role(self, role: AccountRole, user_id: str = USER_ID) -> None:
        self._execute(sa.update(tables.memberships).filter_by(user_id=user_id).values(role=role))

    def leave_account(self) -> None:
        self._execute(sa.delete(tables.memberships).filter_by(user_id=USER_ID))

    def join(self, role: AccountRole) -> None:
        """Makes the user a member of the account again."""
        values = {"account_id": ACCOUNT_ID, "user_id": USER_ID, "role": role, "joined_at_us": NOW_US}
        self._execute(sa.insert(tables.memberships).values(values))

    def change_user(self, **values: Any) -> None:
        self._execute(_own(tables.users).values(values))

    def change_account(self, **values: Any) -> None:
        self._execute(sa.update(tables.accounts).filter_by(account_id=ACCOUNT_ID).values(values))

    def change_key(self, key_id: str, /, **values: Any) -> None:
        self._execute(sa.update(key_tables.keys).filter_by(key_id=key_id).values(values))

    def change_keys(self, **values: Any) -> None:
        """Changes all keys of the visitor's account."""
        self._execute(sa.update(key_tables.keys).filter_by(account_id=ACCOUNT_ID).values(values))

    def falsify_event(self, event_no: int) -> None:
        """Changes what the audit log says."""
        self._execute(sa.update(tables.audit_events).filter_by(event_no=event_no).values(action="key.created"))

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        self._is_new = False
        with self.database.transaction(writes=True) as connection:
            yield connection

    def _execute(self, statement: sa.Executable) -> None:
        with self._writing() as connection:
            connection.execute(statement)

    def account(self, account_id: str = ACCOUNT_ID) -> Account:
        [found] = self._all(Account, tables.accounts, account_id=account_id)
        return found

    def list_keys(self, account_id: str = ACCOUNT_ID) -> list[Key]:
        """Returns the keys of an account in the order in which they were added."""
        return self._all(Key, key_tables.keys, account_id=account_id)

    def key(self, key_id: str) -> Key:
        [found] = self._all(Key, key_tables.keys, key_id=key_id)
        return found

    def users(self) -> list[User]:
        return self._all(User, tables.users)

    def sessions(self) -> list[UserSession]:
        """Returns those of the user."""
        return self._all(UserSession, tables.sessions, user_id=USER_ID)

    def has_link(self) -> bool:
        with self.database.transaction(writes=False) as connection:
            return (
                connection.execute(sa.select(user_tables.sign_in_links).filter_by(user_id=USER_ID)).first() is not None
            )

    def invitations(self) -> list[Invitation]:
        return self._all(Invitation, user_tables.invitations)

    def webhooks(self) -> list[Webhook]:
        return self._all(Webhook, notice_tables.webhooks)

    def delivery(self, delivery_id: str) -> Delivery:
        [found] = self._all(Delivery, notice_tables.notice_deliveries, delivery_id=delivery_id)
        return found

    def muted_kinds(self) -> set[str]:
        with self.database.transaction(writes=False) as connection:
            return set(connection.scalars(sa.select(notice_tables.muted_notices.c.kind)))

    def wants_mail(self) -> bool:
        with self.database.transaction(writes=False) as connection:
            return bool(connection.scalar(sa.select(tables.memberships.c.is_mailed).filter_by(user_id=USER_ID)))

    def events(self, *actions: str) -> list[AuditEvent]:
        """Returns what the audit log has of these actions, the oldest first."""
        found = self._all(AuditEvent, tables.audit_events)
        return [event for event in found if event.action in actions]

    def kept_results(self) -> list[bytes]:
        """Returns what the console has auth keep until it is shown."""
        with self.database.transaction(writes=False) as connection:
            return list(connection.scalars(sa.select(user_tables.challenges.c.challenge).filter_by(kind="result")))

    def _all(self, record: type[RecordT], table: sa.Table, **fields: str) -> list[RecordT]:
        with self.database.transaction(writes=False) as connection:
            return find_all(connection, record, sa.select(table).filter_by(**fields).order_by(sa.text("rowid")))


def _own(table: sa.Table) -> sa.Update:
    return sa.update(table).filter_by(user_id=USER_ID)


async def _no_sleep(_seconds: float) -> None:
    """Returns at once."""
