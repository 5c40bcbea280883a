"""Access tokens for a client of OAuth 2.0 (RFC 6749, section 4.4), such as an application of Microsoft Entra."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from services.router.providers.authentication.bearer import TokenCredentials, read_token
from services.router.providers.authentication.renewal import Expiring
from services.router.providers.authentication.secret import Secret
from services.router.providers.authentication.token_requests import check_address, host_of, post_form

# RFC 7523: the client proves itself by a token of another issuer, such as Kubernetes.
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@dataclass(frozen=True, slots=True)
class ClientCredentials(TokenCredentials):
    source: ClassVar[str] = "client_credentials"
    token_url: str
    client_id: str
    scope: str = ""
    # One of the two.
    client_secret: Secret | None = None
    client_assertion_file: Path | None = None

    @property
    def identity(self) -> str:
        return f"{self.client_id} at {host_of(self.token_url)}"

    def check(self) -> None:
        check_address(self.token_url)
        self._proof()

    async def obtain(self) -> Expiring[str]:
        form = {"grant_type": "client_credentials", "client_id": self.client_id, **self._proof()}
        if self.scope:
            form["scope"] = self.scope
        return read_token((await post_form(self.token_url, form)).json)

    def _proof(self) -> dict[str, str]:
        if self.client_assertion_file is not None:
            assertion = Secret(self.client_assertion_file).read()
            return {"client_assertion_type": _ASSERTION, "client_assertion": assertion}
        return {"client_secret": (self.client_secret or Secret()).read()}
