"""Makes the tokens of sessions, and the codes of links, invitations and recovery.

Each is a secret of its own and names its owner by itself: no form asks for a user name, and none tells who has an
account. Only digests are stored.
"""

import secrets
from typing import Final

# Without letters that look like digits.
ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# 5 bits each: 100 bits, of which no part is guessed within a lifetime.
CODE_LENGTH: Final = 20
_GROUP: Final = 4
_LOOKALIKES: Final = str.maketrans("OIL", "011", " -\t\r\n")
# A longer text is no code, and is not worth a digest.
_TEXT_LENGTH_MOST: Final = 100

_ID_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
_ID_LENGTH: Final = 16

SESSION: Final = "session"
LINK: Final = "sign-in link"
INVITATION: Final = "invitation"
RECOVERY: Final = "recovery code"


def mint_session_token() -> str:
    return secrets.token_urlsafe(32)


def mint_code() -> str:
    """Makes a code for people to type: K7Q2-M4XD-..."""
    characters = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
    return "-".join(characters[start : start + _GROUP] for start in range(0, CODE_LENGTH, _GROUP))


def plain(code: str) -> str:
    """Returns the code without what does not count: case, hyphens and spaces. Empty if it is none."""
    if len(code) > _TEXT_LENGTH_MOST:
        return ""
    letters = code.upper().translate(_LOOKALIKES)
    return letters if len(letters) == CODE_LENGTH and set(letters) <= set(ALPHABET) else ""


def mint_id(prefix: str) -> str:
    return f"{prefix}_" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
