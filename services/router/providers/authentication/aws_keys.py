"""Keys of Amazon's that the operator has: in files or variables, or in a profile."""

import configparser
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from services.router.providers.authentication.aws import AwsCredentials
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.renewal import Expiring
from services.router.providers.authentication.secret import Secret, read_text
from services.router.providers.authentication.sigv4 import AwsKeys

# Files are read again after this time, and when their keys are refused.
READ_EVERY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class AwsAccessKey(AwsCredentials):
    source: ClassVar[str] = "aws_access_key"
    access_key_id: Secret
    secret_access_key: Secret
    session_token: Secret | None = None

    @property
    def identity(self) -> str:
        return f"{self.scope.service} in {self.scope.region}"

    def check(self) -> None:
        self._read()

    async def obtain(self) -> Expiring[AwsKeys]:
        return Expiring(self._read(), math.inf, READ_EVERY_S)

    def _read(self) -> AwsKeys:
        token = "" if self.session_token is None else self.session_token.read()
        return AwsKeys(self.access_key_id.read(), self.secret_access_key.read(), token)


@dataclass(frozen=True, slots=True)
class AwsProfile(AwsCredentials):
    source: ClassVar[str] = "aws_profile"
    path: Path
    profile: str = "default"

    @property
    def identity(self) -> str:
        return f"{self.profile} of {self.path}"

    def check(self) -> None:
        self._read()

    async def obtain(self) -> Expiring[AwsKeys]:
        return Expiring(self._read(), math.inf, READ_EVERY_S)

    def _read(self) -> AwsKeys:
        profiles = configparser.RawConfigParser()
        try:
            profiles.read_string(read_text(self.path))
        except configparser.Error:
            raise CredentialsUnavailable(f"{self.path} is no file of profiles") from None
        if not profiles.has_section(self.profile):
            raise CredentialsUnavailable(f"{self.path} has no profile {self.profile}")
        found = profiles[self.profile]
        key_id, key = found.get("aws_access_key_id", ""), found.get("aws_secret_access_key", "")
        if not key_id or not key:
            raise CredentialsUnavailable(f"the profile {self.profile} of {self.path} has no keys")
        return AwsKeys(key_id, key, found.get("aws_session_token", ""))
