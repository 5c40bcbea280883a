"""Keys of a role of Amazon's for who has a token of another issuer, such as a pod's service account (IRSA)."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from services.router.providers.authentication.aws import AwsCredentials, read_keys
from services.router.providers.authentication.renewal import Expiring
from services.router.providers.authentication.secret import Secret
from services.router.providers.authentication.sigv4 import AwsKeys
from services.router.providers.authentication.token_requests import check_address, post_form

_SESSION_NAME: Final = "legato"
_VERSION: Final = "2011-06-15"
# Elements of an answer in XML, whose texts need no entities.
_ELEMENT: Final = re.compile(r"<(AccessKeyId|SecretAccessKey|SessionToken|Expiration)>([^<&]{1,16384})</")


@dataclass(frozen=True, slots=True)
class AwsWebIdentity(AwsCredentials):
    source: ClassVar[str] = "aws_web_identity"
    role_arn: str
    token_file: Path
    sts_url: str

    @property
    def identity(self) -> str:
        return self.role_arn

    def check(self) -> None:
        check_address(self.sts_url)
        Secret(self.token_file).read()

    async def obtain(self) -> Expiring[AwsKeys]:
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": _VERSION,
            "RoleArn": self.role_arn,
            "RoleSessionName": _SESSION_NAME,
            "WebIdentityToken": Secret(self.token_file).read(),
        }
        response = await post_form(self.sts_url, form)
        found = dict(_ELEMENT.findall(response.body.decode(errors="replace")))
        return read_keys(found, response.headers, "SessionToken")
