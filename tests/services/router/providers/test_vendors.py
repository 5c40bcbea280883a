"""Duties of every vendor's wire, over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.router.providers.base import Provider, ProviderCall, Timeouts
from tests.services.router.harness import QUICK
from tests.services.router.providers.asking import (
    CALL,
    WHOLE_CALL,
    both_ways,
    broken_off,
    failure_of,
    finish_of,
    pieces_of,
    text_of,
)
from tests.services.router.providers.vendors import Vendor, each_break, each_no_answer, each_reason, each_vendor
from tests.support.upstreams.openai import Reply, Upstream

# Where an answer stops: before its head, before its first event, and in its text.
STALLS: dict[str, dict[str, Any]] = {"no head": {"delay_s": 60}, "no event": {"first_event_delay_s": 60}, "text": {}}
stalling = pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS)


def stalled(vendor: Vendor, stall: dict[str, Any]) -> Reply:
    return vendor.reply(**(stall or {"stall_after": vendor.events_to_text}))


@pytest.fixture
async def upstream(vendor: Vendor) -> AsyncIterator[Upstream]:
    async with vendor.upstream() as upstream:
        yield upstream


@pytest.fixture
async def provider(vendor: Vendor, upstream: Upstream) -> AsyncIterator[Provider]:
    provider = vendor.connect(upstream.base_url, Timeouts())
    yield provider
    await provider.aclose()


@each_reason
@both_ways
async def test_every_reason_to_stop_has_one_of_openais(
    call: ProviderCall, vendor: Vendor, said: str, told: str, upstream: Upstream, provider: Provider
) -> None:
    upstream.replies.append(vendor.reply(finish_reason=said))
    assert finish_of(await pieces_of(provider, call)) == told


@each_vendor
async def test_connection_is_used_again_after_a_whole_answer(
    vendor: Vendor, upstream: Upstream, provider: Provider
) -> None:
    upstream.replies.append(vendor.reply(end_delay_s=0.05))
    for call in (CALL, WHOLE_CALL, CALL):
        await pieces_of(provider, call)
    assert len({request.connection for request in upstream.requests}) == 1


@each_break
async def test_stream_that_breaks_is_passed_on_so_far_and_then_fails(
    vendor: Vendor, reply: Reply, upstream: Upstream, provider: Provider
) -> None:
    upstream.replies.append(reply)
    pieces, failure = await broken_off(provider)
    assert text_of(pieces).startswith("Hello")
    assert not any(piece.last for piece in pieces)
    assert "canary" not in str(failure)


@each_no_answer
async def test_answer_in_one_piece_that_is_none_fails(
    vendor: Vendor, body: str, upstream: Upstream, provider: Provider
) -> None:
    upstream.replies.append(vendor.reply(body=body))
    assert "canary" not in str(await failure_of(provider, WHOLE_CALL))


@each_vendor
@stalling
async def test_silence_is_a_failure_and_closes_the_connection(
    vendor: Vendor, stall: dict[str, Any], upstream: Upstream
) -> None:
    provider = vendor.connect(upstream.base_url, QUICK)
    upstream.replies.append(stalled(vendor, stall))
    assert (await failure_of(provider)).what == "did not answer in time"
    await upstream.requests[0].ended.wait()
    assert upstream.requests[0].aborted
    await provider.aclose()


@each_vendor
@stalling
async def test_cancelling_closes_the_connection(
    vendor: Vendor, stall: dict[str, Any], upstream: Upstream, provider: Provider
) -> None:
    # In one piece there is nothing but its head to wait for.
    for call in (CALL, WHOLE_CALL) if "delay_s" in stall else (CALL,):
        upstream.replies.append(stalled(vendor, stall))
        reading = asyncio.create_task(pieces_of(provider, call))
        request = await upstream.received(len(upstream.requests) + 1)
        await asyncio.sleep(0.05)
        reading.cancel()
        async with asyncio.timeout(60):
            await request.ended.wait()
        assert request.aborted
