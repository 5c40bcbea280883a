"""Chats over gRPC: answered, refused, cancelled, killed."""

import asyncio
import os
import signal
import sys

import grpc.aio
import pytest

from edge.rpc.serving import KEEPALIVE_OPTIONS
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.router.v1.router_pb2 import ChatResponse, Citation, Started
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.timing.deadlines import SystemClock
from tests.edge.chat_harness import PROMPT_TOKENS, Conversing, charged, end, piece, saying
from tests.edge.metering_harness import ANN, cost
from tests.edge.rpc.rpc_harness import CHAT, KEY, RpcHarness, reason_of, text_of
from tests.support.tracing import RecordedSpan, recording_tracer
from tests.support.waiting import until

STARTED = ChatResponse(started=Started(class_id="forte", max_tokens=64, attempt=2, ignored=["seed"]))

KILLED_CALLER = """
import sys, grpc
from legato_protos.chat.v1 import chat_pb2 as pb, chat_pb2_grpc
stub = chat_pb2_grpc.ChatServiceStub(grpc.insecure_channel(sys.argv[1]))
chat = pb.Chat(messages=[pb.Message(role=pb.ROLE_USER, text="Hi")])
for response in stub.Stream(pb.StreamRequest(chat=chat), metadata=[("authorization", "Bearer sk-legato-test")]):
    print(len(response.deltas), flush=True)
"""


async def first_words_then_silence(conversation: Conversing) -> None:
    await saying(piece("Hel", 1), piece("lo", 2))(conversation)
    await asyncio.Event().wait()


async def start_caller(rpc_harness: RpcHarness) -> asyncio.subprocess.Process:
    """Starts a program that streams an answer, and returns once it has read some of it."""
    caller = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED_CALLER, rpc_harness.address, stdout=asyncio.subprocess.PIPE
    )
    assert caller.stdout is not None
    assert await caller.stdout.readline()
    return caller


async def test_whole_answer_tells_what_it_costs_and_is_charged_that(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(saying(STARTED, piece("Hel", 1), piece("lo", 2), end(2)))
    call = rpc_harness.stub.Complete(pb.CompleteRequest(chat=CHAT), metadata=KEY)
    answer = await call
    assert (answer.message.text, answer.finish_reason) == ("Hello", pb.FINISH_REASON_STOP)
    assert (answer.model, answer.max_tokens, answer.attempt, list(answer.ignored)) == ("forte", 64, 2, ["seed"])
    assert answer.usage == pb.Usage(prompt_tokens=PROMPT_TOKENS, completion_tokens=2, cost_nanos=cost(PROMPT_TOKENS, 2))
    told = dict(await call.trailing_metadata())
    assert told["x-request-id"] == answer.request_id
    assert told["x-ratelimit-limit-requests"]
    assert await charged(rpc_harness.chats) == answer.usage.cost_nanos


async def test_stream_begins_with_its_start_and_ends_with_usage_and_citations(rpc_harness: RpcHarness) -> None:
    last = end(2)
    last.finished.citations.append(Citation(start_index=0, end_index=2, title="Page", url="https://example.org"))
    await rpc_harness.start(saying(STARTED, piece("Hel", 1), piece("lo", 2), last))
    call = rpc_harness.stub.Stream(pb.StreamRequest(chat=CHAT), metadata=KEY)
    responses = [response async for response in call]
    assert text_of(responses) == "Hello"
    assert [response.HasField("started") for response in responses] == [True] + [False] * (len(responses) - 1)
    assert (responses[0].started.max_tokens, responses[0].started.attempt) == (64, 2)
    finished = responses[-1].finished
    assert finished.citations[0].url == "https://example.org"
    assert finished.usage.cost_nanos == cost(PROMPT_TOKENS, 2) == await charged(rpc_harness.chats)
    assert dict(await call.trailing_metadata())["x-request-id"] == responses[0].started.request_id


async def test_caller_that_is_killed_leaves_no_hold_and_is_charged_as_delivered(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(first_words_then_silence)
    caller = await start_caller(rpc_harness)
    os.kill(caller.pid, signal.SIGKILL)
    await caller.wait()
    await until(lambda: not rpc_harness.chats.metering.journal.taken)
    # Both words were handed to gRPC when the first was read, or soon after.
    assert await charged(rpc_harness.chats) in (cost(PROMPT_TOKENS, 1), cost(PROMPT_TOKENS, 2))


async def test_caller_that_does_not_even_answer_pings_is_gone(rpc_harness: RpcHarness) -> None:
    """It is stopped, and its connection stays: so it is with a machine that vanishes."""
    await rpc_harness.start(first_words_then_silence, options=[(name, 1_000) for name, _ in KEEPALIVE_OPTIONS])
    caller = await start_caller(rpc_harness)
    os.kill(caller.pid, signal.SIGSTOP)
    try:
        # gRPC's own limit is a minute.
        async with asyncio.timeout(30):
            await until(lambda: not rpc_harness.chats.metering.journal.taken)
    finally:
        os.kill(caller.pid, signal.SIGKILL)
        await caller.wait()
    assert await charged(rpc_harness.chats) == cost(PROMPT_TOKENS, 2)


async def test_call_whose_deadline_passes_is_settled(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(first_words_then_silence)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rpc_harness.stub.Complete(pb.CompleteRequest(chat=CHAT), metadata=KEY, timeout=0.3)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: not rpc_harness.chats.metering.journal.taken)
    # Nothing of a whole answer was delivered.
    assert await charged(rpc_harness.chats) == 0
    text, error = await rpc_harness.stream(timeout=1)
    assert (text, error and error.code()) == ("Hello", grpc.StatusCode.DEADLINE_EXCEEDED)
    await until(lambda: not rpc_harness.chats.metering.journal.taken)
    assert await charged(rpc_harness.chats) == cost(PROMPT_TOKENS, 2)


async def say_nothing(conversation: Conversing) -> None:
    await asyncio.Event().wait()


async def test_id_of_a_chat_is_known_before_its_answer_begins(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(say_nothing)
    for begin in (
        rpc_harness.complete,
        lambda: rpc_harness.stub.Stream(pb.StreamRequest(chat=CHAT), metadata=KEY),
    ):
        call = begin()
        told = dict(await call.initial_metadata())
        [slot] = rpc_harness.chats.metering.journal.taken.values()
        assert told["x-request-id"] == slot.request_id
        # Nothing was delivered with it.
        assert not slot.marked
        call.cancel()
        await until(lambda: not rpc_harness.chats.metering.journal.taken)
    assert await charged(rpc_harness.chats) == 0


async def test_id_of_a_chat_is_known_after_its_deadline(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(say_nothing)
    for call in (
        rpc_harness.stub.Stream(pb.StreamRequest(chat=CHAT), metadata=KEY, timeout=0.5).read(),
        rpc_harness.stub.Complete(pb.CompleteRequest(chat=CHAT), metadata=KEY, timeout=0.5),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert dict(raised.value.initial_metadata())["x-request-id"]


async def test_answer_follows_an_id_that_was_told_before(rpc_harness: RpcHarness) -> None:
    more = asyncio.Event()

    async def answer_late(conversation: Conversing) -> None:
        await more.wait()
        await saying(piece("Hel", 1), piece("lo", 2), end(2))(conversation)

    await rpc_harness.start(answer_late)
    whole = rpc_harness.complete()
    stream = rpc_harness.stub.Stream(pb.StreamRequest(chat=CHAT), metadata=KEY)
    ids = [dict(await call.initial_metadata())["x-request-id"] for call in (whole, stream)]
    more.set()
    answer = await whole.read()
    assert (answer.message.text, answer.request_id) == ("Hello", ids[0])
    responses = [response async for response in stream]
    assert (text_of(responses), responses[0].started.request_id) == ("Hello", ids[1])
    assert await charged(rpc_harness.chats) == 2 * cost(PROMPT_TOKENS, 2)


async def test_error_follows_an_id_that_was_told_before(rpc_harness: RpcHarness) -> None:
    more = asyncio.Event()

    async def fail_late(conversation: Conversing) -> None:
        await more.wait()
        raise LegatoError(Reason.UPSTREAM_FAILED, Sentence.verbatim("The model failed."))

    await rpc_harness.start(fail_late)
    call = rpc_harness.stub.Stream(pb.StreamRequest(chat=CHAT), metadata=KEY)
    told = dict(await call.initial_metadata())
    more.set()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call.read()
    assert reason_of(raised.value).reason == Reason.UPSTREAM_FAILED
    assert dict(raised.value.trailing_metadata())["x-request-id"] == told["x-request-id"]


async def test_call_that_is_answered_or_fails_at_once_is_told_its_id_with_that(rpc_harness: RpcHarness) -> None:
    """gRPC repeats a failed call itself, as long as it was told nothing."""

    async def fail(conversation: Conversing) -> None:
        raise LegatoError(Reason.UPSTREAM_FAILED, Sentence.verbatim("The model failed."))

    await rpc_harness.start(fail)
    call = rpc_harness.stub.Stream(pb.StreamRequest(chat=CHAT), metadata=KEY)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call.read()
    assert not raised.value.initial_metadata()
    assert dict(raised.value.trailing_metadata())["x-request-id"]


async def test_refusal_has_its_reason_its_param_and_the_rate_limits(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(saying(end(0)))
    mistaken = pb.Chat(messages=[pb.Message(role=pb.ROLE_USER)])
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rpc_harness.stub.Complete(pb.CompleteRequest(chat=mistaken), metadata=KEY)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    info = reason_of(raised.value)
    assert (info.reason, info.metadata["param"]) == (Reason.REQUEST_INVALID, "messages[0]")
    told = dict(raised.value.trailing_metadata())
    assert told["x-request-id"]
    assert told["x-ratelimit-remaining-requests"] == "2"


async def test_error_in_the_middle_of_a_stream_follows_what_was_delivered(rpc_harness: RpcHarness) -> None:
    async def fail(conversation: Conversing) -> None:
        await saying(piece("Hel", 1))(conversation)
        raise LegatoError(Reason.UPSTREAM_FAILED, Sentence.verbatim("The model's answer was interrupted."))

    await rpc_harness.start(fail)
    text, error = await rpc_harness.stream()
    assert text == "Hel"
    assert error is not None
    assert reason_of(error).reason == Reason.UPSTREAM_FAILED
    assert await charged(rpc_harness.chats) == cost(PROMPT_TOKENS, 1)


async def test_key_that_is_revoked_in_the_middle_of_a_stream_ends_it(rpc_harness: RpcHarness) -> None:
    more = asyncio.Event()

    async def speak_on(conversation: Conversing) -> None:
        await saying(piece("Hel", 1))(conversation)
        await more.wait()
        await saying(piece("lo", 2), end(2))(conversation)

    await rpc_harness.start(speak_on)
    streaming = asyncio.create_task(rpc_harness.stream())
    journal = rpc_harness.chats.metering.journal
    await until(lambda: any(slot.marked for slot in journal.taken.values()))
    rpc_harness.chats.running_keys.refuse([ANN.key_id])
    more.set()
    text, error = await streaming
    assert text == "Hel"
    assert error is not None
    assert reason_of(error).reason == Reason.KEY_INVALID
    assert await charged(rpc_harness.chats) == cost(PROMPT_TOKENS, 1)


async def test_repeat_with_the_same_idempotency_key_is_refused(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(saying(piece("Hello", 1), end(1)))
    metadata = (*KEY, ("idempotency-key", "order-7"))
    await rpc_harness.stub.Complete(pb.CompleteRequest(chat=CHAT), metadata=metadata)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rpc_harness.stub.Complete(pb.CompleteRequest(chat=CHAT), metadata=metadata)
    assert reason_of(raised.value).reason == Reason.REQUEST_REPEATED
    assert await charged(rpc_harness.chats) == cost(PROMPT_TOKENS, 1)


async def test_call_is_part_of_its_callers_trace_whether_it_is_answered_or_refused(rpc_harness: RpcHarness) -> None:
    spans: list[RecordedSpan] = []
    tracer = recording_tracer(SystemClock(), spans)
    await rpc_harness.start(saying(piece("Hello", 1), end(1)), tracer=tracer)
    trace_id, parent_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    metadata = (*KEY, ("traceparent", f"00-{trace_id}-{parent_id}-01"))
    await rpc_harness.stub.Complete(pb.CompleteRequest(chat=CHAT), metadata=metadata)
    with pytest.raises(grpc.aio.AioRpcError):
        await rpc_harness.stub.Complete(pb.CompleteRequest(), metadata=metadata)
    answered, refused = (span for span in spans if span.parent_id == parent_id)
    assert {answered.trace_id, refused.trace_id} == {trace_id}
    assert (answered.attributes["rpc.method"], answered.attributes["legato.end"]) == ("Complete", "complete")
    assert refused.attributes["error.type"] == Reason.REQUEST_INVALID
    assert not any(name.startswith("http.") for name in (*answered.attributes, *refused.attributes))


async def test_chats_that_a_shutdown_cancels_tell_their_callers(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(first_words_then_silence)
    streaming = asyncio.create_task(rpc_harness.stream())
    journal = rpc_harness.chats.metering.journal
    await until(lambda: any(slot.completion_tokens == 2 for slot in journal.taken.values()))
    stopping = asyncio.create_task(rpc_harness.stop(10))
    rpc_harness.servicer.cancel_all()
    text, error = await streaming
    await stopping
    assert text == "Hello"
    assert error is not None
    assert reason_of(error).reason == Reason.UNAVAILABLE
    assert await charged(rpc_harness.chats) == cost(PROMPT_TOKENS, 2)
