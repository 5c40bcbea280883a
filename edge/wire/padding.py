"""Padding of streams. The sizes of encrypted pieces tell much of the words in them to whoever watches the network."""

import secrets
from typing import Final

# What a piece says is filled up to a multiple of this, which is more than most pieces have.
BLOCK_BYTES: Final = 32


def filler(size_bytes: int) -> str:
    """Returns random characters for something of that size, at least one. They cannot be compressed away."""
    return secrets.token_hex(BLOCK_BYTES // 2)[size_bytes % BLOCK_BYTES :]
