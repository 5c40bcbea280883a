"""Creates and parses API keys and playground tokens.

A key is `sk-legato-` + public id + secret + checksum, all in letters and digits. The public id names the key (`key_…`)
and is no secret. Of the secret only an HMAC is stored, under a pepper that the database never sees, so that a stolen
table is useless. The checksum rejects mistyped and truncated keys without a query. A playground token has the same form
after `pt-legato-`, and the id `pt_…`; its digest is of another kind, so that neither passes for the other.
"""

import re
import secrets
import string
import zlib
from dataclasses import dataclass, field
from typing import Final

PREFIX: Final = "sk-legato-"
KEY_ID_PREFIX: Final = "key_"
TOKEN_PREFIX: Final = "pt-legato-"  # noqa: S105
TOKEN_ID_PREFIX: Final = "pt_"  # noqa: S105

ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
PUBLIC_ID_LENGTH: Final = 16
# 5.95 bits per character: 196 bits of entropy.
SECRET_LENGTH: Final = 33
# The fewest characters that hold 32 bits.
CHECKSUM_LENGTH: Final = 6

_SHAPE: Final = re.compile(
    f"(?P<prefix>{PREFIX}|{TOKEN_PREFIX})(?P<public_id>[0-9A-Za-z]{{{PUBLIC_ID_LENGTH}}})(?P<secret>[0-9A-Za-z]{{{SECRET_LENGTH}}})"
    f"(?P<checksum>[0-9A-Za-z]{{{CHECKSUM_LENGTH}}})"
)


@dataclass(frozen=True, slots=True)
class ApiKey:
    public_id: str
    secret: str = field(repr=False)
    # A playground token, which belongs to a session.
    is_token: bool = False

    @property
    def key_id(self) -> str:
        return (TOKEN_ID_PREFIX if self.is_token else KEY_ID_PREFIX) + self.public_id

    def reveal(self) -> str:
        """Returns the key itself, which its owner sees once."""
        prefix = TOKEN_PREFIX if self.is_token else PREFIX
        return prefix + self.public_id + self.secret + _checksum(self)


def mint(*, is_token: bool = False) -> ApiKey:
    return ApiKey(_random_text(PUBLIC_ID_LENGTH), _random_text(SECRET_LENGTH), is_token)


def parse(text: str) -> ApiKey | None:
    """Parses a key; None if we cannot have made it."""
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        return None
    key = ApiKey(shape["public_id"], shape["secret"], shape["prefix"] == TOKEN_PREFIX)
    return key if shape["checksum"] == _checksum(key) else None


def _random_text(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def _checksum(key: ApiKey) -> str:
    remaining = zlib.crc32((key.public_id + key.secret).encode())
    characters = []
    for _ in range(CHECKSUM_LENGTH):
        remaining, digit = divmod(remaining, len(ALPHABET))
        characters.append(ALPHABET[digit])
    return "".join(reversed(characters))
