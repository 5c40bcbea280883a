"""The servers that bill by prefix cache what their vendors say, and nothing else."""

from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from tests.support.upstreams.openai import Upstream
from tests.support.upstreams.prefix_billing import (
    LEAST_TOKENS,
    PORTION_TOKENS,
    SERVERS,
    BillingAnthropic,
    BillingGemini,
    BillingUpstream,
)

LONG = "word " * LEAST_TOKENS
MARK = {"cache_control": {"type": "ephemeral"}}


async def post(upstream: Upstream, body: dict[str, Any]) -> int:
    path = (
        upstream.path.partition("{")[0].removesuffix("/")
        if upstream.kind != "gemini"
        else "/v1/models/m:generateContent"
    )
    headers = {"Authorization": "Bearer secret", "anthropic-version": "2026-10-21", "x-goog-api-key": "secret"}
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{upstream.port}") as session,
        session.post(path, json=body, headers=headers) as response,
    ):
        return response.status


def completion(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts], **fields}


def contents(*texts: str) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": text}]} for text in texts]}


def message(*texts: str, marks: tuple[int, ...] = (-1,)) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts]
    for at in marks:
        blocks[at] |= MARK
    return {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": blocks}]}


async def test_keys_choose_the_server_that_has_the_cache() -> None:
    async with BillingUpstream() as upstream:
        for _ in range(2):
            await post(upstream, completion(LONG, prompt_cache_key="a"))
        first, second = upstream.bill.cached_tokens
        assert (first, second % PORTION_TOKENS) == (0, 0)
        assert second > LEAST_TOKENS
        await post(upstream, completion(LONG, "more", prompt_cache_key="a"))
        assert upstream.bill.cached_tokens[-1] >= second
    async with BillingUpstream() as upstream:
        for _ in range(SERVERS):
            await post(upstream, completion(LONG))
        assert not any(upstream.bill.cached_tokens)


@pytest.mark.parametrize(("vendor", "write"), [(BillingUpstream, completion), (BillingGemini, contents)])
async def test_short_prompts_and_other_beginnings_are_not_cached(
    vendor: type[BillingUpstream | BillingGemini], write: Callable[..., dict[str, Any]]
) -> None:
    async with vendor() as upstream:
        key = {"prompt_cache_key": "a"} if vendor is BillingUpstream else {}
        for texts in (("short",), ("short",), (LONG,), ("other", LONG)):
            assert await post(upstream, write(*texts) | key) == 200
        assert not any(upstream.bill.cached_tokens)
        await post(upstream, write(LONG, "more") | key)
        assert upstream.bill.cached_tokens[-1] > LEAST_TOKENS


async def test_prefixes_are_found_at_a_mark_and_not_far_before_it() -> None:
    async with BillingAnthropic() as upstream:
        await post(upstream, message("short"))
        assert upstream.bill.tokens["cache_write"] == 0
        await post(upstream, message(LONG))
        written = upstream.bill.tokens["cache_write"]
        assert written > LEAST_TOKENS
        for blocks, is_found in ((19, True), (20, False)):
            await post(upstream, message(LONG, *(f"{blocks}.{number}" for number in range(blocks))))
            assert (upstream.bill.cached_tokens[-1] == written) == is_found
        # A mark at the place itself finds it.
        await post(upstream, message(LONG, *map(str, range(40)), marks=(0, -1)))
        assert upstream.bill.cached_tokens[-1] == written
        # Without a mark nothing is looked for.
        await post(upstream, message(LONG, marks=()))
        assert upstream.bill.cached_tokens[-1] == 0


async def test_more_than_four_marks_and_a_longer_life_after_a_shorter_are_refused() -> None:
    async with BillingAnthropic() as upstream:
        assert await post(upstream, message(*"abcd", marks=(0, 1, 2, 3))) == 200
        assert await post(upstream, message(*"abcde", marks=(0, 1, 2, 3, 4))) == 400
        late = message(*"ab", marks=(0, 1))
        late["messages"][0]["content"][1]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
        assert await post(upstream, late) == 400
