"""Both clients, by the same tests: the service has threads of its own, so the one that blocks may do so."""

import asyncio
import gc
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from legato_protos.chat.v1.chat_pb2 import (
    FINISH_REASON_STOP,
    FINISH_REASON_TOOL_CALLS,
    ROLE_USER,
    AnswerMessage,
    CompleteResponse,
    CountTokensResponse,
    Delta,
    Finished,
    GetRequestResponse,
    GetUsageResponse,
    ListModelsResponse,
    Message,
    Model,
    Started,
    StreamResponse,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from legato_protos.client import (
    AsyncChatStream,
    AsyncLegatoClient,
    Certificates,
    ChatStream,
    DeadlineError,
    LegatoClient,
    LegatoError,
    LimitError,
    OutOfCreditError,
    Reason,
    UnavailableError,
    function,
)
from services.chassis import errors
from services.chassis.sentence import Sentence
from tests.support.certificates import Authority
from tests.support.servers.chat_service import REQUEST_ID, ScriptedChatService
from tests.support.waiting import until

API_KEY = "sk-of-the-test"
USAGE = Usage(prompt_tokens=11, completion_tokens=7, cost_nanos=2570)
STARTED = StreamResponse(started=Started(request_id=REQUEST_ID, model="mezzo", max_tokens=64, attempt=1))
TEXT = [
    STARTED,
    StreamResponse(deltas=[Delta(text="It"), Delta(text=" rains")]),
    StreamResponse(deltas=[Delta(text=".")], finished=Finished(finish_reason=FINISH_REASON_STOP, usage=USAGE)),
]

Client = LegatoClient | AsyncLegatoClient


@pytest.fixture(params=[LegatoClient, AsyncLegatoClient])
async def open_client(
    request: pytest.FixtureRequest, service: ScriptedChatService
) -> AsyncIterator[Callable[..., Any]]:
    opened: list[Any] = []

    def open_one(address: str, **arguments: Any) -> Any:
        opened.append(request.param(address, **({"api_key": API_KEY} | arguments)))
        return opened[-1]

    yield open_one
    for client in opened:
        await result(client.close())


@pytest.fixture
def client(open_client: Callable[..., Any], address: str) -> Any:
    return open_client(address)


async def result(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def deltas(stream: ChatStream | AsyncChatStream) -> Sequence[Delta]:
    return list(stream) if isinstance(stream, ChatStream) else [delta async for delta in stream]


async def first_delta(stream: ChatStream | AsyncChatStream) -> Delta:
    return next(stream) if isinstance(stream, ChatStream) else await anext(stream)


async def test_a_string_is_answered(client: Any, service: ScriptedChatService) -> None:
    service.completion = CompleteResponse(message=AnswerMessage(text="Hello."), usage=USAGE)
    answer = await result(client.complete("Say hello.", model="mezzo", max_tokens=5, timeout_s=40))
    assert (answer.message.text, answer.usage) == ("Hello.", USAGE)
    [received] = service.received
    chat = received.request.chat
    assert (chat.model, chat.max_tokens) == ("mezzo", 5)
    assert list(chat.messages) == [Message(role=ROLE_USER, text="Say hello.")]
    assert received.metadata["authorization"] == f"Bearer {API_KEY}"
    assert 0 < received.remaining_s < 60


async def test_every_call_has_a_deadline_and_every_chat_an_idempotency_key(
    client: Any, service: ScriptedChatService
) -> None:
    service.pieces = TEXT
    for _ in range(2):
        await result(client.complete("Hi"))
        await deltas(client.stream("Hi"))
    for read in (client.list_models(), client.get_usage(), client.get_request(REQUEST_ID)):
        await result(read)
    # gRPC rounds up.
    assert all(0 < received.remaining_s < 660 for received in service.received)
    keys = [received.metadata.get("idempotency-key") for received in service.received]
    assert len(set(keys[:4])) == 4
    assert all(keys[:4])
    assert keys[4:] == [None] * 3


async def test_a_mistaken_option_is_noticed_before_anything_is_sent(client: Any, service: ScriptedChatService) -> None:
    for call in (client.complete, client.stream, client.get_usage):
        arguments = () if call == client.get_usage else ("Hi",)
        with pytest.raises(TypeError, match="max_output_tokens"):
            await result(call(*arguments, max_output_tokens=3))
    await result(client.complete("Hi", max_completion_tokens=3))
    [received] = service.received
    assert received.request.chat.max_tokens == 3


async def test_a_stream_is_text_as_it_comes_and_the_whole_answer_at_the_end(
    client: Any, service: ScriptedChatService
) -> None:
    service.pieces = TEXT
    stream = client.stream("How is the weather?")
    assert [delta.text for delta in await deltas(stream)] == ["It", " rains", "."]
    assert (stream.text, stream.request_id) == ("It rains.", REQUEST_ID)
    answer = await result(stream.response())
    assert (answer.request_id, answer.model, answer.usage) == (REQUEST_ID, "mezzo", USAGE)
    assert answer.message == AnswerMessage(text="It rains.")


async def test_tool_calls_of_a_stream_are_put_together(client: Any, service: ScriptedChatService) -> None:
    pieces = [
        ToolCallDelta(index=0, id="call_a", name="weather", arguments='{"city":'),
        ToolCallDelta(index=1, id="call_b", name="time", arguments="{}"),
        ToolCallDelta(index=0, arguments='"Paris"}'),
    ]
    service.pieces = [
        STARTED,
        *(StreamResponse(deltas=[Delta(tool_call=piece)]) for piece in pieces),
        StreamResponse(finished=Finished(finish_reason=FINISH_REASON_TOOL_CALLS)),
    ]
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    stream = client.stream("How is the weather?", tools=[function("weather", "Of a city", schema)])
    answer = await result(stream.response())
    assert answer.finish_reason == FINISH_REASON_TOOL_CALLS
    assert list(answer.message.tool_calls) == [
        ToolCall(id="call_a", name="weather", arguments='{"city":"Paris"}'),
        ToolCall(id="call_b", name="time", arguments="{}"),
    ]
    [tool] = service.received[0].request.chat.tools
    assert json.loads(tool.function.parameters_json) == schema


async def test_models_usage_and_requests_can_be_read(client: Any, service: ScriptedChatService) -> None:
    service.models = ListModelsResponse(models=[Model(model_id="auto"), Model(model_id="mezzo")])
    service.usage = GetUsageResponse(balance_nanos=5)
    service.request = GetRequestResponse(request_id=REQUEST_ID, held_nanos=7)
    assert [model.model_id for model in await result(client.list_models())] == ["auto", "mezzo"]
    service.count = CountTokensResponse(prompt_tokens=12)
    assert await result(client.count_tokens("Hi", model="mezzo")) == 12
    assert (await result(client.get_usage(group_by=("caller",)))).balance_nanos == 5
    assert (await result(client.get_request(REQUEST_ID))).held_nanos == 7
    assert service.received[-1].request.request_id == REQUEST_ID


async def test_a_program_can_call_for_an_account(
    open_client: Callable[..., Any], service: ScriptedChatService, address: str
) -> None:
    client = open_client(address, api_key=None, account_id="acct_1", caller="reports")
    await result(client.list_models())
    metadata = service.received[0].metadata
    assert (metadata["x-legato-account"], metadata["x-legato-caller"]) == ("acct_1", "reports")
    assert "authorization" not in metadata


@pytest.mark.parametrize("arguments", [{"api_key": None}, {"account_id": "acct_1"}])
async def test_a_client_is_for_a_key_or_an_account(
    open_client: Callable[..., Any], address: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="either"):
        open_client(address, **arguments)


async def test_a_refusal_is_raised_with_all_that_is_known_of_it(client: Any, service: ScriptedChatService) -> None:
    refusal = errors.LegatoError(
        errors.Reason.RATE_LIMITED, Sentence.verbatim("Too fast."), param="messages", retry_after_s=2.5
    )
    for call in (lambda: result(client.complete("Hi")), lambda: deltas(client.stream("Hi"))):
        service.refusals.append(refusal)
        with pytest.raises(LimitError) as raised:
            await call()
        error = raised.value
        assert (error.reason, error.message, error.param) == (Reason.RATE_LIMITED, "Too fast.", "messages")
        assert (error.retry_after_s, error.request_id) == (2.5, REQUEST_ID)
    assert len(service.received) == 2, "it was repeated, although only time can help"


async def test_out_of_credit_has_a_class_of_its_own(client: Any, service: ScriptedChatService) -> None:
    service.refusals.append(errors.LegatoError(errors.Reason.CREDITS_EXHAUSTED, Sentence.verbatim("Nothing is left.")))
    with pytest.raises(OutOfCreditError, match="CREDITS_EXHAUSTED: Nothing is left"):
        await result(client.complete("Hi"))


async def test_what_was_not_available_is_repeated_under_the_same_idempotency_key(
    client: Any, service: ScriptedChatService
) -> None:
    service.pieces = TEXT
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: result(client.complete("A long prompt. " * 100_000)),
        lambda: deltas(client.stream("Hi")),
        lambda: result(client.list_models()),
    ]
    for call in calls:
        service.received.clear()
        service.refusals.append(errors.unavailable("The router"))
        await call()
        first, second = service.received
        assert first.request == second.request
        assert first.metadata.get("idempotency-key") == second.metadata.get("idempotency-key")


async def test_the_service_can_forbid_repeats(client: Any, service: ScriptedChatService) -> None:
    service.refusals.append(
        errors.LegatoError(errors.Reason.MAINTENANCE, Sentence.verbatim("Until noon."), retry_after_s=3600)
    )
    service.pushback = (("grpc-retry-pushback-ms", "-1"),)
    with pytest.raises(UnavailableError) as raised:
        await result(client.complete("Hi"))
    assert (raised.value.reason, raised.value.retry_after_s) == (Reason.MAINTENANCE, 3600)
    assert len(service.received) == 1


async def test_a_stream_that_breaks_after_its_beginning_is_not_repeated(
    client: Any, service: ScriptedChatService
) -> None:
    service.pieces = TEXT[:2]
    stream = client.stream("Hi")
    with pytest.raises(LegatoError) as raised:
        await deltas(stream)
    assert (raised.value.reason, raised.value.request_id) == (Reason.INTERNAL, REQUEST_ID)
    assert stream.text == "It rains"
    assert len(service.received) == 1


async def _close(stream: Any, client: Any) -> None:
    stream.close()
    assert await deltas(stream) == []


async def _leave(stream: Any, client: Any) -> None:
    if isinstance(stream, ChatStream):
        with stream:
            pass
    else:
        async with stream:
            pass


async def _close_client(stream: Any, client: Any) -> None:
    await result(client.close())
    with pytest.raises(LegatoError) as raised:
        await deltas(stream)
    assert raised.value.reason is Reason.CANCELLED


@pytest.mark.parametrize("end", [_close, _leave, _close_client])
async def test_a_stream_that_is_left_is_cancelled(
    client: Any, service: ScriptedChatService, end: Callable[[Any, Any], Awaitable[None]]
) -> None:
    service.pieces = TEXT[:2]
    service.may_end.clear()
    stream = client.stream("Hi")
    await first_delta(stream)
    if end is _close_client:
        # What has come already can still be read.
        await first_delta(stream)
    await end(stream, client)
    await until(service.was_cancelled.is_set)


async def test_a_stream_that_is_forgotten_is_cancelled(client: Any, service: ScriptedChatService) -> None:
    service.pieces = TEXT[:2]
    service.may_end.clear()
    await first_delta(client.stream("Hi"))
    gc.collect()
    await until(service.was_cancelled.is_set)


async def test_a_cancelled_task_cancels_its_call(service: ScriptedChatService, address: str) -> None:
    service.pieces = TEXT[:2]
    service.may_end.clear()
    async with AsyncLegatoClient(address, api_key=API_KEY) as client:
        stream = client.stream("Hi")
        await anext(stream)
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(service.was_cancelled.is_set)


async def test_a_call_ends_at_its_deadline(client: Any, service: ScriptedChatService) -> None:
    service.pieces = TEXT[:2]
    service.may_end.clear()
    timeout_s = 0.3
    # On a busy machine a call may end before it is there.
    while not service.received:
        with pytest.raises(DeadlineError) as raised:
            await deltas(client.stream("Hi", timeout_s=timeout_s))
        assert raised.value.reason is Reason.DEADLINE_EXCEEDED
        timeout_s *= 2
    await until(service.was_cancelled.is_set)


async def test_an_address_without_an_edge_is_unavailable(open_client: Callable[..., Any], socket_folder: Path) -> None:
    with pytest.raises(UnavailableError) as raised:
        await result(open_client(f"unix:{socket_folder}/none.sock").list_models())
    assert raised.value.reason is Reason.UNAVAILABLE


async def test_several_edges_take_turns_and_prove_who_they_are(
    open_client: Callable[..., Any], service: ScriptedChatService, socket_folder: Path
) -> None:
    authority = Authority(socket_folder / "certs")
    paths = dict(zip(("certificate", "key"), authority.files("caller/reports"), strict=True))
    certificates = Certificates(authority.folder / "ca.pem", **paths)
    edges = [ScriptedChatService() for _ in range(2)]
    servers = [edge.start("127.0.0.1:0", _credentials(authority, "edge")) for edge in edges]
    impostor, impostor_port = ScriptedChatService().start("127.0.0.1:0", _credentials(authority, "router"))
    addresses = ",".join(f"127.0.0.1:{port}" for _, port in servers)
    client = open_client(f"ipv4:{addresses}", certificates=certificates)
    # The second connection may take a moment longer.
    async with asyncio.timeout(60):
        while not all(edge.received for edge in edges):
            await result(client.list_models())
    with pytest.raises(UnavailableError):
        await result(open_client(f"127.0.0.1:{impostor_port}", certificates=certificates).list_models())
    with pytest.raises(ValueError, match="certificates"):
        open_client("127.0.0.1:1")
    for server in (impostor, *(server for server, _ in servers)):
        server.stop(None).wait()


def _credentials(authority: Authority, name: str) -> grpc.ServerCredentials:
    certificate, key = (path.read_bytes() for path in authority.files(name))
    believed = (authority.folder / "ca.pem").read_bytes()
    return grpc.ssl_server_credentials([(key, certificate)], believed, require_client_auth=True)
