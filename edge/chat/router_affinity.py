"""Tells which big prompts begin alike, so that the turns of a conversation meet the router that has counted them."""

import hashlib
from typing import Final

# Of the messages only this much is read, as the client sent it: a later turn has it again. Less is counted so quickly
# that any router will do.
BEGINNING_BYTES: Final = 16 * 1024


def affinity_of(account_id: str, messages_json: bytes) -> str:
    """Returns what all turns of a conversation have in common; empty if the messages are short."""
    if len(messages_json) < BEGINNING_BYTES:
        return ""
    beginning = messages_json[:BEGINNING_BYTES]
    return hashlib.sha256(b"%b\n%b" % (account_id.encode(), beginning)).hexdigest()
