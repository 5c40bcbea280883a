"""Requests that a model does not take as they are: parameters that are left out, the next model, and what the caller
is told."""

from pathlib import Path

import msgspec
import pytest

from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from tests.services.router.harness import WAYS, read, refusal_of, running_router, target
from tests.support.upstreams import anthropic
from tests.support.upstreams.anthropic import AnthropicUpstream
from tests.support.upstreams.openai import Recorded, Reply, Upstream

SEED = b'{"seed":7,"temperature":0.5}'
EXTRA_FIELD = '{"detail":[{"type":"extra_forbidden","loc":["body","user_id"],"msg":"canary"}]}'
IN_PLACE = Reply(writes=['data: {"error":{"code":400,"message":"canary"}}\n\n'])


class Picky(Upstream):
    """Refuses some parameters, as servers do, or anything with a word in it."""

    def __init__(self, *refused: str, says: str = "Unsupported parameter: '{}'.") -> None:
        super().__init__()
        self._refused = refused
        self._says = says

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        for name in self._refused:
            if name in recorded.json:
                error = {"message": self._says.format(name), "type": "invalid_request_error"}
                return Reply(status=400, body=msgspec.json.encode({"error": error}).decode())
        return None


@WAYS
@pytest.mark.parametrize("stream", [True, False])
async def test_caller_is_told_what_the_model_was_called_without(
    stream: bool, ordinary: bool, socket_folder: Path, log: Log
) -> None:
    async with (
        AnthropicUpstream() as upstream,
        running_router(socket_folder, log, {target("main"): upstream}) as router,
    ):
        answer = await router.ask(parameters_json=SEED, stream=stream, ordinary=ordinary)
    [started] = [response.started for response in answer.responses if response.HasField("started")]
    assert list(started.ignored) == ["seed", "temperature"]


async def test_caller_of_a_stream_is_told_before_a_model_that_thinks_has_begun(socket_folder: Path, log: Log) -> None:
    async with AnthropicUpstream() as upstream:
        upstream.default_reply.stall_after = 0
        async with running_router(socket_folder, log, {target("main"): upstream}) as router:
            call = router.open(parameters_json=SEED)
            told = await call.receive()
            call.cancel()
    assert told is not None
    assert list(told.ignored) == ["seed", "temperature"]
    assert not told.accepted
    assert not told.HasField("started")


async def test_nothing_is_told_of_a_model_that_takes_everything(socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        answer = await router.ask(parameters_json=SEED)
    assert not any(response.ignored or response.started.ignored for response in answer.responses)


async def test_fallback_to_a_model_that_takes_it_is_no_reason_to_leave_it_out(socket_folder: Path, log: Log) -> None:
    async with AnthropicUpstream() as first, Upstream() as second:
        first.default_reply.status = 500
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            answer = await router.ask(parameters_json=SEED)
        [started] = [response.started for response in answer.responses if response.HasField("started")]
        assert (list(started.ignored), second.requests[0].json["seed"]) == ([], 7)


@pytest.mark.parametrize(
    ("upstream", "parameters", "ignored"),
    [
        (Picky("temperature"), {"temperature": 0.5, "seed": 7, "reasoning_effort": "low"}, ["temperature"]),
        (
            Picky("reasoning_effort", says="Bad request."),
            {"temperature": 0.5, "reasoning_effort": "low", "verbosity": "low"},
            ["reasoning_effort", "verbosity"],
        ),
    ],
    ids=["named", "not named"],
)
async def test_model_that_refuses_a_parameter_is_called_again_without_it(
    upstream: Picky, parameters: dict[str, object], ignored: list[str], socket_folder: Path, log: Log
) -> None:
    async with upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        answer = await router.ask(parameters_json=msgspec.json.encode(parameters))
    assert answer.text == "Hello, world!"
    [started] = [response.started for response in answer.responses if response.HasField("started")]
    assert list(started.ignored) == ignored
    sent = [set(parameters) & set(request.json) for request in upstream.requests]
    assert sent == [set(parameters), set(parameters) - set(ignored)]


@pytest.mark.parametrize("parameters", [b"", b'{"temperature":0.5}', b'{"stop":["a"]}', b'{"reasoning_effort":"low"}'])
async def test_request_that_is_refused_without_them_too_is_refused(
    parameters: bytes, socket_folder: Path, log: Log
) -> None:
    async with Picky("messages", says="I do not like it.") as upstream:
        async with running_router(socket_folder, log, {target("main"): upstream}) as router:
            assert (await refusal_of(router, parameters_json=parameters)).reason is Reason.UPSTREAM_REFUSED
        assert len(upstream.requests) == (2 if b"reasoning" in parameters else 1)


async def test_refusal_over_a_parameter_takes_no_attempt_from_the_models_behind(socket_folder: Path, log: Log) -> None:
    """Its second call fails for another reason."""
    async with Picky("seed") as first, Upstream() as second:
        first.default_reply = Reply(status=500)
        targets = {target("first"): first, target("second"): second}
        async with running_router(socket_folder, log, targets, most_attempts=2) as router:
            answer = await read(router.open(parameters_json=SEED))
        assert answer.text == "Hello, world!"
        assert (len(first.requests), second.requests[0].json["seed"]) == (2, 7)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    "reply",
    [Reply(status=400, body="canary"), Reply(status=422, body=EXTRA_FIELD), IN_PLACE],
    ids=["400", "422", "in place of an answer"],
)
async def test_request_that_one_model_refuses_is_answered_by_the_next(
    reply: Reply, stream: bool, socket_folder: Path, log: Log
) -> None:
    async with Upstream(reply) as first, Upstream() as second:
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            assert (await router.ask(stream=stream)).text == "Hello, world!"
        assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_request_that_every_model_refuses_is_the_mistake_of_the_client_in_our_words(
    socket_folder: Path, log: Log
) -> None:
    named = '{"error":{"message":"canary","param":"tools[0].function.canary","code":"invalid_value"}}'
    async with (
        Upstream(IN_PLACE) as first,
        Upstream(Reply(status=400, body=named)) as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        refusal = await refusal_of(router)
    assert (refusal.wire.http_status, refusal.wire.code, refusal.param) == (400, "request_not_supported", "tools")
    assert refusal.message == "No model of this class accepts the field `tools` as it was sent."


async def test_request_that_one_model_refuses_while_the_other_fails_may_be_repeated(
    socket_folder: Path, log: Log
) -> None:
    async with (
        Upstream(Reply(status=400)) as first,
        Upstream(Reply(status=500)) as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        assert (await refusal_of(router)).reason is Reason.UPSTREAM_FAILED


async def test_parameters_are_not_left_out_in_vain_if_another_field_is_refused(socket_folder: Path, log: Log) -> None:
    body = '{"error":{"message":"No.","param":"messages","code":"invalid_value"}}'
    async with Upstream(Reply(status=400, body=body)) as upstream:
        async with running_router(socket_folder, log, {target("main"): upstream}) as router:
            refusal = await refusal_of(router, parameters_json=b'{"reasoning_effort":"low"}')
        assert (refusal.param, len(upstream.requests)) == ("messages", 1)


@pytest.mark.parametrize(
    ("upstream", "reply"),
    [
        (Upstream(), Reply(status=400, body='{"error":{"message":"canary","code":"content_policy_violation"}}')),
        (
            Upstream(),
            Reply(
                status=400,
                body='{"error":{"code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}',
            ),
        ),
        (Upstream(), Reply(status=400, body='{"error":{"message":"canary","code":"invalid_prompt"}}')),
        (Upstream(), Reply(status=400, body='{"error":{"message":"Content Exists Risk","code":"invalid_request"}}')),
        (Upstream(), Reply(status=403, body='{"error":{"metadata":{"error_type":"content_policy_violation"}}}')),
        (Upstream(), Reply(events=['{"error":{"message":"canary","code":"content_filter"}}'])),
        (
            AnthropicUpstream(),
            anthropic.error(400, "invalid_request_error", "Output blocked by content filtering policy"),
        ),
    ],
    ids=["openai", "azure", "openai's reasoning", "deepseek", "openrouter", "in place of an answer", "anthropic"],
)
async def test_content_that_a_policy_does_not_allow_is_not_tried_elsewhere(
    upstream: Upstream, reply: Reply, socket_folder: Path, log: Log
) -> None:
    upstream.default_reply = reply
    async with upstream, Upstream() as second:
        async with running_router(socket_folder, log, {target("first"): upstream, target("second"): second}) as router:
            refusal = await refusal_of(router)
        assert (refusal.wire.http_status, refusal.wire.code) == (400, "content_policy_violation")
        assert not second.requests


async def test_key_that_is_not_permitted_is_no_question_of_policy(socket_folder: Path, log: Log) -> None:
    async with (
        Upstream(Reply(status=403, body='{"error":{"code":"forbidden"}}')) as first,
        Upstream() as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        assert (await router.ask()).text == "Hello, world!"


async def test_client_is_told_the_cause_of_the_last_refusal_and_no_word_of_it(socket_folder: Path, log: Log) -> None:
    upstream = Picky("tools", says="Invalid schema for function 'canary': In context=(), canary")
    async with upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        tools = b'[{"type":"function","function":{"name":"f"}}]'
        refusal = await refusal_of(router, tools_json=tools, parameters_json=b'{"logit_bias":{"50256":-100}}')
    assert (refusal.reason, refusal.param) == (Reason.UPSTREAM_REFUSED, "tools")
    assert str(refusal) == "No model of this class accepts the schema of one of the functions."
    # Without a parameter that few models take it would be refused as well.
    assert len(upstream.requests) == 1
