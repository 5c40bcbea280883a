"""The offer of search, and models that take no such offer."""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.router.grounding.grounding import Grounding
from services.router.grounding.search import SearxSearch
from services.router.grounding.search_tool import NAME
from tests.services.router.grounding.harness import SEARCHES_MOST, SETTINGS, RouterGroundingHarness, running_harness
from tests.services.router.grounding.searching import MODES, SWITCHES, answering
from tests.services.router.harness import as_json, running_router, target
from tests.support.outside.searx import Searx
from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream
from tests.support.upstreams.gemini import GeminiReply, GeminiUpstream
from tests.support.upstreams.openai import Reply, Upstream


async def test_model_that_takes_no_tools_though_the_routes_do_not_say_so_answers_without(
    harness: RouterGroundingHarness, log_text: Callable[[], str]
) -> None:
    harness.upstream.replies.append(Reply(status=400, body='{"error": {"message": "tools are not supported"}}'))
    assert (await harness.ask("Which?")).text == "Hello, world!"
    assert ["tools" in request.json for request in harness.upstream.requests] == [True, False]
    assert "search.refused" in log_text()
    harness.upstream.replies.extend([Reply(status=400, body="{}"), Reply(status=400, body="{}")])
    with pytest.raises(LegatoError) as refusal:
        await harness.ask("Which?")
    assert refusal.value.reason is Reason.UPSTREAM_REFUSED


@pytest.mark.parametrize("down", [0, 2])
async def test_model_that_takes_no_tools_is_asked_again_though_it_was_the_last_that_may_be_asked(
    down: int, socket_folder: Path, log: Log, upstream: Upstream, searx: Searx
) -> None:
    upstream.replies.append(Reply(status=400, body='{"error": {"message": "tools are not supported"}}'))
    async with (
        Upstream(Reply(status=500)) as failing,
        aclosing(SearxSearch(searx.base_url, timeout_s=1)) as search,
        running_router(
            socket_folder,
            log,
            {**{target(f"down-{number}"): failing for number in range(down)}, target("main"): upstream},
            grounding=Grounding(SETTINGS, None, search, log),
            most_attempts=down + 1,
        ) as router,
    ):
        answer = await router.ask(**SWITCHES)
    assert answer.text == "Hello, world!"
    # With the function, and without.
    assert answer.responses[0].started.attempt == 2 * (down + 1)


async def test_function_that_a_model_refused_is_not_counted(harness: RouterGroundingHarness) -> None:
    harness.upstream.replies.extend([answering("Blue.", usage=None)] * 2)
    without = await harness.ask("Which?", search=False)
    harness.upstream.replies.appendleft(Reply(status=400, body="{}"))
    refused = await harness.ask("Which?")
    assert refused.text == without.text
    assert refused.finished.usage == without.finished.usage


@pytest.mark.parametrize(
    "fields",
    [
        {"search": False},
        {"tools_json": as_json([{"type": "function", "function": {"name": "weather"}}])},
        {"parameters_json": b'{"response_format":{"type":"json_object"}}'},
        {"tool_choice_json": b'"none"'},
    ],
    ids=["switched off", "tools of the client", "bound to a format", "no tools wanted"],
)
async def test_search_is_offered_only_where_it_can_be(fields: dict[str, Any], harness: RouterGroundingHarness) -> None:
    await harness.ask("Which?", **fields)
    offered = harness.upstream.requests[0].json.get("tools", [])
    assert NAME not in [tool["function"]["name"] for tool in offered]


async def test_model_without_tools_is_offered_none(
    socket_folder: Path, log: Log, upstream: Upstream, searx: Searx
) -> None:
    plain = replace(target("main"), has_tools=False)
    async with running_harness(socket_folder, log, upstream, searx=searx, served_by=plain) as harness:
        assert (await harness.ask("Which?")).text == "Hello, world!"
        assert "tools" not in upstream.requests[0].json


@MODES
@pytest.mark.parametrize(
    ("vendor", "asking", "answered"),
    [
        (
            AnthropicUpstream,
            AnthropicReply(contents=[], calls=[(NAME, ['{"query":', '"pump"}'])], finish_reason="tool_use"),
            AnthropicReply(contents=["Blue [1]."]),
        ),
        (
            GeminiUpstream,
            GeminiReply(contents=[], calls=[(NAME, {"query": "pump"})]),
            GeminiReply(contents=["Blue [1]."]),
        ),
    ],
    ids=["anthropic", "gemini"],
)
async def test_models_that_speak_another_language_search_as_well(
    vendor: type[Upstream],
    asking: Reply,
    answered: Reply,
    stream: bool,
    socket_folder: Path,
    log: Log,
    searx: Searx,
) -> None:
    async with vendor() as upstream, running_harness(socket_folder, log, upstream, searx=searx) as harness:
        # In its last round the model may not call, and its server checks what else it is sent.
        for searches in range(1, SEARCHES_MOST + 1):
            upstream.replies.extend([*[asking] * searches, answered])
            answer = await harness.ask("Which?", stream=stream)
            assert (answer.text, answer.finished.finish_reason) == ("Blue [1].", "stop")
            assert answer.finished.usage.prompt_tokens == 18 * (searches + 1)
            assert [citation.title for citation in answer.finished.citations] == ["Page 1"]
