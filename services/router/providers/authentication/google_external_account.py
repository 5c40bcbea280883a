"""Access tokens of Google for who has a token of another issuer (workload identity federation, RFC 8693)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from services.router.providers.authentication.bearer import TokenCredentials, check_token, lifetime_until, read_token
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.google_service_account import CLOUD_PLATFORM
from services.router.providers.authentication.renewal import Expiring
from services.router.providers.authentication.secret import read_text
from services.router.providers.authentication.server_clock import ServerClock
from services.router.providers.authentication.token_requests import ask, check_address, post_form

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105
_LIFETIME: Final = "3600s"


class _Format(msgspec.Struct, frozen=True):
    type: str = "text"
    subject_token_field_name: str = ""


class _Subject(msgspec.Struct, frozen=True):
    """The place of the other issuer's token."""

    file: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    format: _Format = _Format()


class _Configuration(msgspec.Struct, frozen=True):
    """A file as `gcloud iam workload-identity-pools create-cred-config` writes it."""

    type: str
    audience: str
    subject_token_type: str
    token_url: str
    credential_source: _Subject
    service_account_impersonation_url: str = ""


@dataclass(frozen=True, slots=True)
class GoogleExternalAccount(TokenCredentials):
    source: ClassVar[str] = "google_external_account"
    path: Path
    scope: str = CLOUD_PLATFORM

    @property
    def identity(self) -> str:
        return str(self.path)

    def check(self) -> None:
        self._read()

    async def obtain(self) -> Expiring[str]:
        configured = self._read()
        subject = configured.credential_source
        if subject.file:
            subject_text = read_text(self.path.parent / subject.file)
        else:
            subject_text = (await ask(subject.url, subject.headers)).body.decode(errors="replace")
        form = {
            "grant_type": _EXCHANGE,
            "audience": configured.audience,
            "scope": self.scope,
            "requested_token_type": _ACCESS_TOKEN,
            "subject_token": _subject_token(subject_text, subject.format),
            "subject_token_type": configured.subject_token_type,
        }
        federated = read_token((await post_form(configured.token_url, form)).json)
        if not configured.service_account_impersonation_url:
            return federated
        return await self._impersonate(configured.service_account_impersonation_url, federated.value)

    async def _impersonate(self, url: str, federated_token: str) -> Expiring[str]:
        headers = {"Authorization": f"Bearer {federated_token}", "Content-Type": "application/json"}
        response = await ask(url, headers, msgspec.json.encode({"scope": [self.scope], "lifetime": _LIFETIME}))
        clock = ServerClock()
        clock.learn(response.headers)
        lifetime_s = lifetime_until(response.json.get("expireTime"), clock.now_s())
        return Expiring(check_token(response.json.get("accessToken")), lifetime_s)

    def _read(self) -> _Configuration:
        try:
            configured = msgspec.json.decode(read_text(self.path), type=_Configuration)
        except (msgspec.DecodeError, RecursionError):
            configured = None
        if configured is None or configured.type != "external_account":
            raise CredentialsUnavailable(f"{self.path} is no configuration of an external account")
        subject, urls = configured.credential_source, [configured.token_url]
        if bool(subject.file) is bool(subject.url):
            raise CredentialsUnavailable(f"{self.path} must have a credential_source with either file or url")
        for url in (*urls, subject.url, configured.service_account_impersonation_url):
            if url:
                check_address(url)
        return configured


def _subject_token(text: str, written: _Format) -> str:
    if written.type != "json":
        return check_token(text.strip())
    try:
        fields: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        fields = None
    return check_token(fields.get(written.subject_token_field_name) if isinstance(fields, dict) else None)
