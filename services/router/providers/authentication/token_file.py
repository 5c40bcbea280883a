"""An access token in a file that something else replaces, such as a sidecar."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from services.router.providers.authentication.bearer import TokenCredentials, check_token
from services.router.providers.authentication.renewal import Expiring
from services.router.providers.authentication.secret import Secret

# The file is read again after this time, and when its token is refused.
READ_EVERY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class TokenFile(TokenCredentials):
    source: ClassVar[str] = "token_file"
    path: Path

    @property
    def identity(self) -> str:
        return str(self.path)

    def check(self) -> None:
        check_token(Secret(self.path).read())

    async def obtain(self) -> Expiring[str]:
        return Expiring(check_token(Secret(self.path).read()), math.inf, READ_EVERY_S)
