"""Creates a client of Valkey or Redis, and limits its calls in time."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, Final

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from services.chassis.settings import SettingsError

# The timeout, as a number of short waits: if this process or the machine stalls, a stall consumes only one of them.
LOOKS: Final = 5
LOOK_S: Final = 0.05


def make_client(url: str) -> redis.asyncio.Redis:
    try:
        client = redis.asyncio.Redis.from_url(
            url,
            # Timed out by `in_time`, which does not take our own stall for the server's silence.
            socket_timeout=None,
            socket_connect_timeout=None,
            # A call without an answer may have counted: a retry could count it twice.
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        # Unknown options are detected only here. It does not connect.
        client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError):
        # Not quoted: the malformed part may be a password.
        raise SettingsError("LEGATO_VALKEY_URL must be a redis://, rediss:// or unix:// URL") from None
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
