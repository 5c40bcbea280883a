"""Keys of the role that a machine, a container or a pod of Amazon's cloud runs as."""

from dataclasses import dataclass
from typing import ClassVar, Final

from services.router.providers.authentication.aws import AwsCredentials, read_keys
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.renewal import Expiring
from services.router.providers.authentication.secret import Secret
from services.router.providers.authentication.sigv4 import AwsKeys
from services.router.providers.authentication.token_requests import ask, check_address

METADATA_URL: Final = "http://169.254.169.254"
_TOKEN_PATH: Final = "/latest/api/token"  # noqa: S105
_ROLES_PATH: Final = "/latest/meta-data/iam/security-credentials/"
# Of the session with the metadata service (IMDSv2), in seconds.
_SESSION: Final = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}


@dataclass(frozen=True, slots=True)
class AwsInstance(AwsCredentials):
    """The role of a machine, by version 2 of its metadata service."""

    source: ClassVar[str] = "aws_instance"
    metadata_url: str = METADATA_URL

    @property
    def identity(self) -> str:
        return f"{self.scope.service} in {self.scope.region}"

    def check(self) -> None:
        check_address(self.metadata_url)

    async def obtain(self) -> Expiring[AwsKeys]:
        session = await ask(f"{self.metadata_url}{_TOKEN_PATH}", _SESSION, b"", method="PUT")
        headers = {"X-aws-ec2-metadata-token": _word_in(session.body)}
        role = _word_in((await ask(f"{self.metadata_url}{_ROLES_PATH}", headers)).body)
        response = await ask(f"{self.metadata_url}{_ROLES_PATH}{role}", headers)
        return read_keys(response.json, response.headers)


@dataclass(frozen=True, slots=True)
class AwsContainer(AwsCredentials):
    """The role of a container (ECS) or of a pod (EKS Pod Identity)."""

    source: ClassVar[str] = "aws_container"
    url: str
    authorization: Secret | None = None

    @property
    def identity(self) -> str:
        return f"{self.scope.service} in {self.scope.region}"

    def check(self) -> None:
        check_address(self.url)
        if self.authorization is not None:
            self.authorization.read()

    async def obtain(self) -> Expiring[AwsKeys]:
        headers = {} if self.authorization is None else {"Authorization": self.authorization.read()}
        response = await ask(self.url, headers)
        return read_keys(response.json, response.headers)


def _word_in(body: bytes) -> str:
    """Returns the first line, which is sent in a header or a path."""
    word = body.decode(errors="replace").partition("\n")[0].strip()
    if not word or not (word.isascii() and word.isprintable()) or " " in word:
        raise CredentialsUnavailable("the metadata service names no role")
    return word
