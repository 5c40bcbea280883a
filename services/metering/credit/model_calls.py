"""The calls to models that were made for one request, as its hold keeps them."""

from collections.abc import Iterable
from typing import Final

import msgspec

from services.rules.usage import Usage

# A request has a call or two. Each round of search, and each model that continues an answer, adds one.
CALLS_MOST: Final = 50


class ModelCall(msgspec.Struct, frozen=True, array_like=True):
    """A call, as its provider counts it; in JSON an array of these fields."""

    # The operator's names.
    provider: str
    model_name: str
    # None: unknown.
    cost_nanos: int | None
    usage: Usage


def encode_calls(calls: Iterable[ModelCall]) -> str:
    """Returns JSON: an array of the calls, of which the last one answered."""
    return msgspec.json.encode(list(calls)[-CALLS_MOST:]).decode()


_decoder: Final = msgspec.json.Decoder(list[ModelCall])


def decode_calls(text: str | None) -> list[ModelCall]:
    return _decoder.decode(text) if text else []
