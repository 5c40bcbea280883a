"""Amazon's Signature Version 4 of a request (docs.aws.amazon.com/IAM, "Create a signed AWS API request")."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_METHOD: Final = "POST"
_UNRESERVED: Final = "-_.~"


@dataclass(frozen=True, slots=True)
class AwsKeys:
    access_key_id: str
    secret_access_key: str = field(repr=False)
    # Of keys that expire.
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class SigningScope:
    """The part of Amazon that a signature is valid for."""

    region: str
    service: str


def sign(
    keys: AwsKeys,
    scope: SigningScope,
    now_s: float,
    headers: Mapping[str, str],
    path: str,
    body: bytes,
) -> dict[str, str]:
    """Returns the headers that sign a request with these headers, names of which are in lower case; `path` is as it is
    sent, with the query."""
    moment = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-date": moment}
    if keys.session_token:
        added["x-amz-security-token"] = keys.session_token
    signed = dict(sorted({**headers, **added}.items()))
    names = ";".join(signed)
    address, _, query = path.partition("?")
    request = "\n".join(
        (
            _METHOD,
            # What the path has encoded is encoded once more.
            quote(address, safe=f"/{_UNRESERVED}"),
            _canonical(query),
            *(f"{name}:{' '.join(value.split())}" for name, value in signed.items()),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    credential = f"{moment[:8]}/{scope.region}/{scope.service}/aws4_request"
    text = "\n".join((_ALGORITHM, moment, credential, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{keys.secret_access_key}".encode()
    for part in credential.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    named = f"Credential={keys.access_key_id}/{credential}, SignedHeaders={names}, Signature={signature}"
    return {**added, "authorization": f"{_ALGORITHM} {named}"}


def _canonical(query: str) -> str:
    """Returns the parameters in order, each with a sign between name and value."""
    pairs = sorted(pair.partition("=")[::2] for pair in query.split("&") if pair)
    return "&".join(f"{name}={value}" for name, value in pairs)
