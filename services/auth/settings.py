"""Auth's settings, each read from `LEGATO_` and its name in capitals."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from services.auth.core.encryption import parse_encryption_key
from services.auth.core.peppers import parse_peppers
from services.auth.core.records.accounts import KeyLimits
from services.auth.notices.rules.webhook_client import WebhookClient
from services.auth.origins import parse_origins
from services.auth.sign_in.rules.oidc import parse_oidc_client
from services.auth.sign_in.rules.smtp import MailSender, parse_mail_server
from services.chassis.access_tokens import check_public_keys, check_signing_key
from services.chassis.process.settings import ServiceSettings
from services.chassis.rpc.replicas import parse_endpoints
from services.chassis.settings import (
    OperationsListen,
    PostgresAddress,
    Seconds,
    SecondsOrZero,
    check_all,
)
from services.rules.largest_limits import LARGEST_LIMITS
from services.rules.residency import DataStore, keep_in_canada

if TYPE_CHECKING:
    from services.auth.service import ConsoleOptions


# The value of `audit_copy` for no copy.
NO_COPY: Final = "none"


class AuthSettings(ServiceSettings, frozen=True, kw_only=True):
    key_peppers: str
    # The regions of the folder and the database, which must be in Canada.
    data_region: str = ""
    database_url: PostgresAddress = ""
    database_region: str = ""
    # Off if `legato migrate` does it before a new version's services start.
    migrate_at_start: bool = True
    auth_listen: str = ""
    # Address of health checks, for clients without a certificate.
    auth_health_listen: str = ""
    # Address of the metrics for Prometheus, over HTTP; empty: not served.
    auth_metrics_listen: OperationsListen = ""
    # Signs the access tokens of users; empty: users cannot sign in.
    access_token_signing_key: str = ""
    # The consoles' origins, comma-separated.
    console_url: str = ""
    # A unix socket for a console.
    auth_console_listen: str = ""
    # Encrypts what users gave us: VERSION:HEX, comma-separated. Empty: the pepper does, and there are no passwords.
    credential_encryption_key: str = ""
    # OpenID Connect. Empty: there is no sign-in by it.
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_client_secret: str = ""
    # The mail server, and who mail is from. Empty: no mail is sent.
    smtp_url: str = ""
    mail_from: str = ""
    # Metering's addresses, whose notices are delivered. Empty: a socket in `data`.
    metering_address: str = ""
    # How often notices are looked for.
    notice_interval_s: Seconds = 10.0
    # The pause between two passes that prune the audit log, and how long its events are kept; 0: never, and for ever.
    retention_interval_s: SecondsOrZero = 3_600.0
    retention_audit_log_days: Annotated[int, msgspec.Meta(ge=0, le=36_500)] = 400
    # A folder or a bucket for the copy of the audit log, which a restored database is brought up to; none: there is
    # none. Empty: a folder in `data`.
    audit_copy: str = ""
    audit_copy_region: str = ""
    # Begins a new copy, if the last segment of the one that is lost began with this event.
    audit_copy_lost_after: Annotated[int, msgspec.Meta(ge=0)] = 0
    # Whether webhooks may be in private networks, and without TLS.
    webhook_private_networks: bool = False
    # Metering's defaults: no member can give a key more. 0: unlimited.
    requests_per_minute: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_LIMITS["requests_per_minute"])] = 3_000
    tokens_per_minute: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_LIMITS["tokens_per_minute"])] = 0
    concurrent_requests: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_LIMITS["concurrent_requests"])] = 0

    @property
    def stores(self) -> list[DataStore]:
        return [
            DataStore("DATA", self.data_region),
            DataStore("DATABASE", self.database_region, self.database_url),
            DataStore("AUDIT_COPY", self.audit_copy_region, self.audit_copy),
        ]

    @property
    def copy_address(self) -> str | Path | None:
        """The folder or bucket of the copy of the audit log; None: there is none."""
        return None if self.audit_copy == NO_COPY else self.audit_copy or self.data / "audit-copy"

    def check(self) -> None:
        check_all(
            partial(keep_in_canada, self.stores),
            partial(parse_peppers, self.key_peppers),
            lambda: check_signing_key(self.access_token_signing_key) if self.access_token_signing_key else None,
            partial(check_public_keys, self.access_token_public_keys),
            partial(parse_origins, self.console_url),
            partial(parse_oidc_client, self.oidc_issuer, self.oidc_client_id, self.oidc_client_secret),
            partial(parse_mail_server, self.smtp_url, self.mail_from),
            partial(parse_encryption_key, self.credential_encryption_key),
            partial(parse_endpoints, self.metering_address),
        )

    @property
    def console(self) -> "ConsoleOptions":
        # `legato up` checks all settings before it starts a process, and needs nothing of what this imports.
        from services.auth.service import ConsoleOptions

        mail_server = parse_mail_server(self.smtp_url, self.mail_from)
        limits = (self.requests_per_minute, self.tokens_per_minute, self.concurrent_requests)
        return ConsoleOptions(
            signing_key=self.access_token_signing_key,
            public_keys=self.access_token_public_keys,
            origins=self.console_url,
            service_limits=KeyLimits(*(limit or None for limit in limits)),
            encryption_key=self.credential_encryption_key,
            oidc=parse_oidc_client(self.oidc_issuer, self.oidc_client_id, self.oidc_client_secret),
            mail_sender=MailSender(mail_server) if mail_server else None,
            webhook_client=WebhookClient(allows_private=self.webhook_private_networks),
        )
