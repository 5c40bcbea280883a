"""A client of Valkey or Redis, and how long it waits for an answer."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, Final

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from services.chassis.settings import SettingsError

# How long the server may be silent, in looks at whether it has answered: where this process stalls, or the machine, the
# server had no time either, and one look alone is used up.
LOOKS: Final = 5
LOOK_S: Final = 0.05


def make_client(url: str) -> redis.asyncio.Redis:
    try:
        client = redis.asyncio.Redis.from_url(
            url,
            # Timed by `in_time`, which does not take a stall of our own for silence.
            socket_timeout=None,
            socket_connect_timeout=None,
            # A call that got no answer may have counted: trying it again could count it twice.
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        # Options that do not exist are noticed only here. It connects to nobody.
        client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError):
        # Not quoted: a password may stand where the address has its mistake.
        raise SettingsError(
            "LEGATO_VALKEY_URL must be redis://…, rediss://… or unix://…, as Redis's clients read it"
        ) from None
    return client


async def in_time(asked: Awaitable[Any]) -> Any:
    call = asyncio.ensure_future(asked)
    for _ in range(LOOKS):
        done, _ = await asyncio.wait((call,), timeout=LOOK_S)
        if done:
            return call.result()
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await call
    raise TimeoutError
