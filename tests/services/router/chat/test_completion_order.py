"""Models in their order: who is asked next, when, and when not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from tests.services.router.harness import QUICK, WAYS, read, refusal_of, running_router, target
from tests.support.upstreams.openai import Reply, Upstream


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "reply",
    [Reply(status=429), Reply(status=500, body="canary"), Reply(status=401), Reply(delay_s=60), Reply(body="<html>")],
)
async def test_next_model_is_asked_when_the_first_fails_before_its_first_byte(
    reply: Reply, stream: bool, socket_folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    async with Upstream(reply) as first, Upstream() as second:
        targets = {target("first", max_output_tokens=30): first, target("second", max_output_tokens=20): second}
        async with running_router(socket_folder, log, targets, QUICK) as router:
            answer = await router.ask(stream=stream)
            assert answer.text == "Hello, world!"
            assert answer.responses[0].started.max_tokens == 20
            assert (len(first.requests), len(second.requests)) == (1, 1)
            assert second.requests[0].json["model"] == "second-model"
    assert '"attempt":2' in log_text()


async def test_model_with_a_larger_window_is_asked_where_the_first_has_no_room(socket_folder: Path, log: Log) -> None:
    async with Upstream() as small, Upstream() as large:
        targets = {target("small", context_tokens=20): small, target("large"): large}
        async with running_router(socket_folder, log, targets) as router:
            assert (await router.ask()).text == "Hello, world!"
            assert not small.requests


async def test_all_models_failing_is_one_error_in_our_words(socket_folder: Path, log: Log) -> None:
    async with Upstream(Reply(status=500, body="canary")) as first, Upstream() as gone:
        await gone.stop()
        targets = {target("first"): first, target("second"): gone}
        async with running_router(socket_folder, log, targets) as router:
            refusal = await refusal_of(router)
    assert (refusal.reason, refusal.wire.http_status) == (Reason.UPSTREAM_FAILED, 502)
    assert "canary" not in refusal.message


@WAYS
@pytest.mark.parametrize(
    "reply",
    [
        Reply(cut_after=3, event_delay_s=0.01),
        Reply(stall_after=3),
        Reply(finish_reason=None),
        Reply(finish_reason="error"),
        Reply(events=['{"choices":[{"delta":{"content":"Hello"}}]}', '{"error":{"message":"canary"}}']),
        Reply(contents=["Hello"], tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]),
    ],
)
async def test_answer_that_breaks_ends_in_an_error_and_is_not_tried_elsewhere(
    reply: Reply, ordinary: bool, socket_folder: Path, log: Log
) -> None:
    async with Upstream(reply) as first, Upstream() as second:
        targets = {target("first"): first, target("second"): second}
        async with running_router(socket_folder, log, targets, QUICK) as router:
            call = router.open(ordinary=ordinary)
            opening = await call.receive()
            assert opening is not None
            assert opening.HasField("started")
            with pytest.raises(LegatoError) as refusal:
                await read(call)
            assert refusal.value.reason is Reason.UPSTREAM_FAILED
            assert "canary" not in refusal.value.message
            assert not second.requests
