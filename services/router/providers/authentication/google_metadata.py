"""Access tokens of the service account that a machine or pod of Google's cloud runs as, from its metadata server."""

from dataclasses import dataclass
from typing import ClassVar, Final

from services.router.providers.authentication.bearer import TokenCredentials, read_token
from services.router.providers.authentication.renewal import Expiring
from services.router.providers.authentication.token_requests import ask, check_address

METADATA_URL: Final = "http://metadata.google.internal"
_PATH: Final = "/computeMetadata/v1/instance/service-accounts"
# Refuses requests that a browser or a proxy was made to send.
_HEADERS: Final = {"Metadata-Flavor": "Google"}


@dataclass(frozen=True, slots=True)
class GoogleMetadata(TokenCredentials):
    source: ClassVar[str] = "google_metadata"
    account: str = "default"
    metadata_url: str = METADATA_URL

    @property
    def identity(self) -> str:
        return self.account

    def check(self) -> None:
        check_address(self.metadata_url)

    async def obtain(self) -> Expiring[str]:
        return read_token((await ask(f"{self.metadata_url}{_PATH}/{self.account}/token", _HEADERS)).json)
