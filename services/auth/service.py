"""Assembles auth on one database, for the process and for tests."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from services.auth.audit.rules.copy import AuditCopy
from services.auth.audit.rules.copy_end import CopyEnd
from services.auth.audit.servicer import AuditServicer
from services.auth.core.encryption import TextCipher, parse_encryption_key
from services.auth.core.parts import Parts, Sleep
from services.auth.core.peppers import Peppers
from services.auth.core.records.accounts import NO_LIMITS, KeyLimits
from services.auth.core.store.encrypted import encrypt_anew, use_cipher
from services.auth.core.store.tables import metadata
from services.auth.keys.records import Changes
from services.auth.keys.rules.callers import Callers
from services.auth.keys.rules.keys import Keys
from services.auth.keys.rules.last_uses import LastUses
from services.auth.keys.rules.playground import PlaygroundTokens
from services.auth.keys.rules.spend_limits import SpendLimiter
from services.auth.keys.rules.verifier import Verifier
from services.auth.keys.rules.watch import Watches
from services.auth.keys.servicers.auth import AuthServicer
from services.auth.keys.servicers.keys import KeyAdminServicer
from services.auth.keys.store.epochs import changes_since, find_contradicted, record_peppers
from services.auth.notices.rules.delivery import NoticeDelivery
from services.auth.notices.rules.loop import NoticeLoop
from services.auth.notices.rules.networks import KeyNetworks
from services.auth.notices.rules.recording import NoticeRecorder
from services.auth.notices.rules.webhook_client import WebhookClient
from services.auth.notices.servicer import NoticeServicer
from services.auth.origins import parse_origins
from services.auth.people.servicers.account_admin import AccountAdminServicer
from services.auth.people.servicers.users import UserAdminServicer
from services.auth.sign_in.rules.mail import Mail
from services.auth.sign_in.rules.oidc import OidcClient, OidcIssuer
from services.auth.sign_in.rules.oidc_sign_in import OidcSignIn
from services.auth.sign_in.rules.passkeys import Passkeys
from services.auth.sign_in.rules.password_sign_in import PasswordSignIn
from services.auth.sign_in.rules.sessions import Sessions
from services.auth.sign_in.rules.sign_in import SignIn
from services.auth.sign_in.rules.smtp import MailSender
from services.auth.sign_in.rules.totp import CredentialCipher
from services.auth.sign_in.servicers.own_user import UserServicer
from services.auth.sign_in.servicers.sign_in import SignInServicer
from services.chassis.access_tokens import AccessTokenSigner, AccessTokenVerifier
from services.chassis.database.database import Database
from services.chassis.database.erasing import overwrite_what_is_deleted
from services.chassis.object_store import open_object_store
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

if TYPE_CHECKING:
    from legato_protos.metering.v1.outbox_pb2_grpc import OutboxServiceAsyncStub
    from legato_protos.metering.v1.spend_limits_pb2_grpc import SpendLimitServiceAsyncStub

MIGRATIONS = Path(__file__).parent / "migrations"


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """The settings that consoles need; with none of them, users cannot sign in."""

    signing_key: str = ""
    # Further public keys, while the signing key is replaced.
    public_keys: str = ""
    origins: str = ""
    # What keys have without limits of their own.
    service_limits: KeyLimits = NO_LIMITS
    # Encrypts what users gave us; empty: the pepper does, and there are no passwords.
    encryption_key: str = ""
    # None: there is no sign-in by OpenID Connect.
    oidc: OidcClient | None = None
    # None: no mail is sent.
    mail_sender: MailSender | None = None
    # None: webhooks on the internet alone.
    webhook_client: WebhookClient | None = None


class AuthService:
    def __init__(
        self,
        database: Database,
        peppers: Peppers,
        clock: Clock,
        log: Log,
        sleep: Sleep = asyncio.sleep,
        console: ConsoleOptions = ConsoleOptions(),  # noqa: B008
        outbox: "OutboxServiceAsyncStub | None" = None,
        spend_limits: "SpendLimitServiceAsyncStub | None" = None,
    ) -> None:
        """Takes metering's notices over from `outbox`, and limits there by `spend_limits` what keys may spend."""

        async def read_changes(since_epoch: int) -> Changes:
            return await database.read_in_place(changes_since, since_epoch)

        self._database = database
        self._peppers = peppers
        self._log = log
        self._copy: AuditCopy | None = None
        keys = parse_encryption_key(console.encryption_key)
        self._cipher = TextCipher(keys, peppers.derive("email addresses"))
        use_cipher(database, self._cipher)
        overwrite_what_is_deleted(database)
        self.parts = parts = Parts(database, peppers, clock, log, sleep, console.service_limits)
        self.verifier = Verifier(parts)
        callers = Callers(parts)
        self.last_uses = LastUses(parts)
        signer = AccessTokenSigner(console.signing_key) if console.signing_key else None
        self.sessions = sessions = Sessions(parts, signer)
        self.playground = PlaygroundTokens(parts)
        origins = parse_origins(console.origins)
        passkeys = Passkeys(origins)
        self.mail = mail = Mail(parts, console.mail_sender, origins[0] if origins else "")
        self.webhook_client = webhook_client = console.webhook_client or WebhookClient()
        recorder = NoticeRecorder(is_mail_offered=mail.is_offered)
        self.notice_delivery = delivery = NoticeDelivery(parts, webhook_client, mail)
        self.notice_loop = NoticeLoop(parts, recorder, delivery, outbox)
        self.key_networks = KeyNetworks(parts, recorder)
        self.watches = Watches(
            read_changes, self.last_uses.record, clock, log, record_networks=self.key_networks.record
        )
        self.sign_in = sign_in = SignIn(parts, sessions, passkeys, mail)
        passwords = PasswordSignIn(parts, sessions, sign_in, mail, CredentialCipher(keys) if keys else None)
        issuer = OidcIssuer(console.oidc, sessions.now_us, log) if console.oidc else None
        oidc = OidcSignIn(parts, sessions, sign_in, mail, issuer, origins)
        self.servicers = [
            AuthServicer(parts, self.verifier, callers, self.watches),
            AccountAdminServicer(parts, mail, self.playground),
            KeyAdminServicer(Keys(parts, SpendLimiter(spend_limits)), callers),
            SignInServicer(parts, sign_in, passwords, oidc, sessions),
            UserServicer(parts, sign_in, passwords, oidc, passkeys, mail),
            UserAdminServicer(parts),
            AuditServicer(parts),
            NoticeServicer(parts, recorder, webhook_client),
        ]
        verifier = AccessTokenVerifier(console.public_keys, signer)
        self.access = AccessCheck(verifier, sessions.now_us, sessions.confirm)

    async def record_peppers(self) -> None:
        """Records the peppers, before anything is served. If they differ from those of the replica that started last,
        callers drop their caches."""
        fingerprints = self._peppers.fingerprints
        contradicted = await self._database.read(find_contradicted, self._peppers)
        if contradicted:
            # A lost secret was replaced by a new one: every key would be refused without a reason.
            raise SettingsError(
                f"LEGATO_KEY_PEPPERS: version {contradicted[0]} is not the secret that the keys in this database were "
                "created with: restore that secret or, if it is lost, give the new one its own version, such as 2:HEX "
                "(keys that were created with the lost one stay refused)"
            )
        if await self._database.write(record_peppers, fingerprints):
            self._log.info("peppers.changed")

    async def open_copy(
        self, address: str | Path | None, lost_after: int, data: Path, on_full: Callable[[bool], None]
    ) -> AuditCopy | None:
        """Brings the database up to the copy of the audit log, if there is one, before anything is served. How far it
        reaches is noted in the folder `data`."""
        if address is None:
            return None
        store, end = open_object_store(address), CopyEnd(data)
        self._copy = copy = AuditCopy(self._database, self.parts.audit, store, self._log, end, on_full)
        await copy.open(lost_after)
        return copy

    async def close(self) -> None:
        """Writes what was noted of keys' uses and copies the last events, and closes what sends notices."""
        if self._copy is not None:
            await self._copy.close()
        await self.last_uses.written()
        await self.key_networks.written()
        self.webhook_client.close()
        await self.mail.close()

    async def encrypt_emails(self) -> None:
        """Encrypts addresses that are in plain text or under an earlier key, before anything is served."""
        if await self._database.write(encrypt_anew, metadata, self._cipher):
            self._log.info("emails.encrypted")
