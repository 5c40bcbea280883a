"""Ids of tool calls that carry, sealed, what the model's next turn needs.

Every client returns the id of a call as it came, in the call and in its result; most return nothing else of what a
model thought. Nothing is kept here: any router that has the key opens an id, and only for the account that it was made
for. Before the mark stands the id that the client would get otherwise, so that ids which a client shortens or changes
still tell calls apart, and lose nothing but the reasoning.
"""

import base64
import hashlib
import re
import secrets
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from services.chassis.sealing import KEY_BYTES, CannotOpen, Sealed, VersionedSealer
from services.chassis.versioned_secrets import parse_versioned_secrets
from services.router.schema.thoughts import MARK, Carried, Thought, characters_of, join_carried

KEY_VARIABLE: Final = "LEGATO_REASONING_KEY"
# How OpenAI's ids begin, and so all that clients get.
ID_PREFIX: Final = "call_"
# Clients have no limit of their own below this, and agents resend all ids of a conversation with every turn.
LONGEST_ID_CHARACTERS: Final = 48 * 1024
# What is longer would not fit either, so it is not even compressed, which takes milliseconds. Prose shrinks to less
# than half.
MOST_CHARACTERS_IN_ID: Final = 128 * 1024
MOST_CHARACTERS: Final = 256 * 1024
# Of what is told to clients that ask for reasoning, which no client shortens.
LONGEST_DATA_CHARACTERS: Final = 512 * 1024

# Between the parts of a message's thoughts.
_BETWEEN_DATA: Final = "."

_PURPOSE: Final = b"legato reasoning"
_LEVEL: Final = 6
_VERSION: Final = re.compile(r"[1-9][0-9]{0,8}")
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Carried)


class ReasoningSeals:
    def __init__(self, by_version: Mapping[int, bytes]) -> None:
        self._sealer = VersionedSealer(by_version, _PURPOSE)

    def seal_id(self, call_id: str, own_id: str, family: str, thoughts: Sequence[Thought], account_id: str) -> str:
        """Returns the id that carries the thoughts; `call_id` itself if it would be too long. `own_id` is the vendor's,
        empty if it gave none that is unique."""
        short = (
            call_id
            if _PLAIN_ID.fullmatch(call_id)
            else f"{ID_PREFIX}{hashlib.sha256(call_id.encode()).hexdigest()[:24]}"
        )
        carried = Carried(family, "" if own_id == short else own_id, thoughts)
        if characters_of(thoughts) > MOST_CHARACTERS_IN_ID:
            return call_id
        data = self._seal(carried, account_id, LONGEST_ID_CHARACTERS - len(short) - len(MARK))
        return f"{short}{MARK}{data}" if data else call_id

    def seal_data(self, family: str, thoughts: Sequence[Thought], account_id: str) -> str:
        """Returns the thoughts of a message for a client that asked for them; empty if they are too long."""
        return self._seal(Carried(family, "", thoughts), account_id, LONGEST_DATA_CHARACTERS)

    def open_id(self, call_id: str, account_id: str) -> tuple[str, Carried | None]:
        """Returns the short id, and what the id carries: None if it cannot be opened."""
        short, _, data = call_id.partition(MARK)
        if not short:
            # The client has removed the beginning.
            short = f"{ID_PREFIX}{hashlib.sha256(call_id.encode()).hexdigest()[:24]}"
        return short, self._open(data, account_id, LONGEST_ID_CHARACTERS)

    def open_data(self, data: str, account_id: str) -> Carried | None:
        """Returns the thoughts of a message. Of one that was told in several parts, these follow each other."""
        opened = [self._open(part, account_id, LONGEST_DATA_CHARACTERS) for part in data.split(_BETWEEN_DATA)]
        return join_carried([carried for carried in opened if carried is not None])

    def _seal(self, carried: Carried, account_id: str, most_characters: int) -> str:
        if characters_of(carried.thoughts) > MOST_CHARACTERS:
            return ""
        packed = zlib.compress(_encoder.encode(carried), _LEVEL)
        sealed = self._sealer.seal(packed, account_id.encode())
        data = f"{sealed.key_version}_{_to_text(sealed.data)}"
        return data if len(data) <= most_characters else ""

    def _open(self, data: str, account_id: str, most_characters: int) -> Carried | None:
        version, _, sealed = data.partition("_")
        if len(data) > most_characters or not _VERSION.fullmatch(version):
            return None
        try:
            packed = self._sealer.open(Sealed(int(version), _from_text(sealed)), account_id.encode())
            return _decoder.decode(zlib.decompress(packed))
        except (CannotOpen, zlib.error, ValueError, msgspec.DecodeError):
            # Another account's, changed on its way, or of a key that is gone, or of another release.
            return None


def open_seals(reasoning_key: str) -> ReasoningSeals:
    """Opens the seals of a key as the settings have it; without one, of a key that only this process has."""
    if not reasoning_key:
        return ReasoningSeals({1: secrets.token_bytes(KEY_BYTES)})
    return ReasoningSeals(parse_versioned_secrets(KEY_VARIABLE, reasoning_key))


def _to_text(data: bytes) -> str:
    """Writes bytes in letters, digits and underscores: some clients remove anything else from ids."""
    text = base64.urlsafe_b64encode(data).decode().rstrip("=")
    return text.replace("_", "_u").replace("-", "_m")


def _from_text(text: str) -> bytes:
    coded = text.replace("_m", "-").replace("_u", "_")
    return base64.b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True)
