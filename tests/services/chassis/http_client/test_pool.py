"""Connections to one server: how its host is looked up."""

import asyncio
import socket
from typing import Any

import pytest

from services.chassis.http_client.failures import Interrupted
from tests.services.chassis.http_client.test_connection import HELLO, answer_of, server_that


async def test_many_who_connect_at_once_look_the_host_up_once_and_a_failure_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo
    lookups = 0

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal lookups
        lookups += 1
        await asyncio.sleep(0.01)
        if lookups == 1:
            raise socket.gaierror
        return await look_up(*args, **kwargs)

    async with server_that(HELLO) as (found, _):
        monkeypatch.setattr(loop, "getaddrinfo", counted)
        with pytest.raises(Interrupted, match="could not be reached"):
            await answer_of(found)
        assert await asyncio.gather(*(answer_of(found) for _ in range(5))) == [b"hello"] * 5
        await asyncio.gather(*(answer_of(found) for _ in range(8)))
        assert lookups == 2
