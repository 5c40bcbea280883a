"""Loops of tools with a model that thinks, at Amazon Bedrock: in its own framing, as at Anthropic."""

from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from tests.services.router.harness import running_router, target
from tests.services.router.reasoning.loops import Conversation
from tests.support.upstreams.bedrock import API_KEY, BedrockUpstream
from tests.support.upstreams.thinking import DONE, ThinkingClaude

ROUTE = {
    "api_key": API_KEY,
    "key_header": "authorization",
    "platform": "bedrock",
    "version": "bedrock-2023-05-31",
}


class ThinkingBedrock(ThinkingClaude, BedrockUpstream):
    """Claude with extended thinking behind InvokeModel."""


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_every_turn_of_a_loop_has_the_thoughts_before_it(stream: bool, socket_folder: Path, log: Log) -> None:
    targets = {target("model", 4_000_000, 1_000_000): ThinkingBedrock()}
    [upstream] = targets.values()
    async with upstream, running_router(socket_folder, log, dict(targets), route_fields=ROUTE) as router:
        upstream.loop.loops = 20
        upstream.loop.calls_at_once = 2
        assert await Conversation(router, stream=stream).run() == DONE
        assert upstream.refused == []
        assert (upstream.loop.asked, upstream.loop.returned) == (20, 20)
