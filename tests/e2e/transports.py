"""One chat over HTTP or over gRPC, whose answer is told in the same terms."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import grpc
from grpc_status import rpc_status

from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.chat.v1.chat_pb2_grpc import ChatServiceStub
from services.chassis.errors import LegatoError, from_status
from services.rules.usage import COLUMNS, Usage, usage_of
from tests.e2e.raw_http import Answer, post_chat
from tests.support.rpc_chats import socket_of, to_chat
from tests.support.service import Service
from tests.support.waiting import WAIT_TIMEOUT_S

_FINISHED: Final = {
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
    pb.FINISH_REASON_TOOL_CALLS: "tool_calls",
    pb.FINISH_REASON_CONTENT_FILTER: "content_filter",
}
_CUT_BY: Final = {pb.CUT_BY_UNSPECIFIED: "", pb.CUT_BY_CREDIT: "credit", pb.CUT_BY_SPEND_LIMIT: "spend_limit"}


class Failure(NamedTuple):
    # 0: the answer had begun.
    status: int
    type: str
    code: str | None
    param: str | None
    message: str
    says_when_to_retry: bool


class ToolCall(NamedTuple):
    id: str
    name: str
    # Of a custom tool, its input.
    arguments: str
    is_custom: bool = False


class Citation(NamedTuple):
    start_index: int
    end_index: int
    title: str
    url: str


@dataclass
class Told:
    """All that a client learns of a chat. Two are equal if only their ids, times and costs differ: HTTP tells no
    cost."""

    text: str = ""
    refusal: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: str = ""
    usage: Usage | None = None
    citations: list[Citation] = field(default_factory=list)
    cut_by: str = ""
    reasoning: str = ""
    model: str = ""
    max_tokens: int = 0
    attempt: int = 0
    ignored: list[str] = field(default_factory=list)
    rates: dict[str, str] = field(default_factory=dict)
    failure: Failure | None = None
    # Sealed anew each time.
    reasoning_data: str = field(default="", compare=False)
    request_id: str = field(default="", compare=False)
    cost_nanos: int | None = field(default=None, compare=False)


class Transport(Protocol):
    def ask(self, api_key: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Told: ...


class OverHttp:
    def __init__(self, service: Service) -> None:
        self._service = service

    def ask(self, api_key: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Told:
        answer = post_chat(self._service, api_key, body, headers)
        told = Told(request_id=answer.headers["x-request-id"], rates=_rates(answer.headers.items()))
        if answer.status != 200:
            told.failure = _failure(answer.status, answer.error, says_when_to_retry="retry-after" in answer.headers)
            return told
        told.max_tokens = int(answer.headers["x-legato-max-tokens"])
        told.attempt = int(answer.headers["x-legato-attempt"])
        told.ignored = _names(answer.headers.get("x-legato-ignored", ""))
        return _read_stream(told, answer) if body.get("stream") else _read_whole(told, answer.json)


class OverRpc:
    """Calls with a key; or, without one, for the account that its headers name."""

    def __init__(self, service: Service) -> None:
        self._channel = grpc.insecure_channel(socket_of(service.data))
        self._stub = ChatServiceStub(self._channel)

    def __enter__(self) -> "OverRpc":
        return self

    def __exit__(self, *failure: object) -> None:
        self._channel.close()

    def ask(self, api_key: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Told:
        chat = to_chat(body)
        named = {**(headers or {}), **({"authorization": f"Bearer {api_key}"} if api_key else {})}
        metadata = tuple((name.lower(), value) for name, value in named.items())
        told = Told()
        call: Any = None
        try:
            if body.get("stream"):
                call = self._stub.Stream(pb.StreamRequest(chat=chat), metadata=metadata, timeout=WAIT_TIMEOUT_S)
                for response in call:
                    _add_response(told, response)
            else:
                whole, call = self._stub.Complete.with_call(
                    pb.CompleteRequest(chat=chat), metadata=metadata, timeout=WAIT_TIMEOUT_S
                )
                _add_completion(told, whole)
        except grpc.RpcError as error:
            call = error
            told.failure = _failure_of(error, has_begun=bool(told.model))
        given = [(name, str(value)) for name, value in (*call.initial_metadata(), *call.trailing_metadata())]
        told.rates = _rates(given)
        told.request_id = dict(given)["x-request-id"]
        return told


def _add_response(told: Told, response: pb.StreamResponse) -> None:
    if response.HasField("started"):
        _add_start(told, response.started)
    for delta in response.deltas:
        told.text += delta.text
        told.refusal += delta.refusal
        told.reasoning += delta.reasoning
        if delta.HasField("tool_call"):
            _add_call(told, delta.tool_call.index, delta.tool_call)
    if response.HasField("finished"):
        _add_end(told, response.finished, response.finished.citations)
        told.reasoning_data = response.finished.reasoning_data


def _add_completion(told: Told, whole: pb.CompleteResponse) -> None:
    _add_start(told, whole)
    told.text, told.refusal = whole.message.text, whole.message.refusal
    told.reasoning, told.reasoning_data = whole.message.reasoning, whole.message.reasoning_data
    for index, call in enumerate(whole.message.tool_calls):
        _add_call(told, index, call)
    _add_end(told, whole, whole.message.citations)


def _add_start(told: Told, started: pb.Started | pb.CompleteResponse) -> None:
    told.model, told.max_tokens, told.attempt = started.model, started.max_tokens, started.attempt
    told.ignored = list(started.ignored)


def _add_call(told: Told, index: int, call: pb.ToolCall | pb.ToolCallDelta) -> None:
    if index == len(told.tool_calls):
        told.tool_calls.append(ToolCall(call.id, call.name, "", call.is_custom))
    before = told.tool_calls[index]
    told.tool_calls[index] = before._replace(arguments=before.arguments + call.arguments)


def _add_end(told: Told, end: pb.Finished | pb.CompleteResponse, citations: Iterable[pb.Citation]) -> None:
    told.finish_reason, told.cut_by = _FINISHED[end.finish_reason], _CUT_BY[end.cut_by]
    told.usage = usage_of(end.usage)
    told.cost_nanos = end.usage.cost_nanos
    told.citations = [Citation(each.start_index, each.end_index, each.title, each.url) for each in citations]


def _read_whole(told: Told, completion: Mapping[str, Any]) -> Told:
    [choice] = completion["choices"]
    told.model = completion["model"]
    _add_message(told, choice["message"])
    told.finish_reason = choice["finish_reason"]
    _add_usage(told, completion["usage"])
    return told


def _read_stream(told: Told, answer: Answer) -> Told:
    for event in answer.events:
        if event == "[DONE]":
            continue
        if "error" in event:
            told.failure = _failure(0, event["error"], says_when_to_retry=False)
            continue
        told.model = event["model"]
        if event.get("usage"):
            _add_usage(told, event["usage"])
        for choice in event["choices"]:
            _add_message(told, choice["delta"])
            told.finish_reason = choice["finish_reason"] or ""
    return told


def _add_message(told: Told, message: Mapping[str, Any]) -> None:
    told.text += message.get("content") or ""
    told.refusal += message.get("refusal") or ""
    told.reasoning += message.get("reasoning_content") or ""
    for detail in message.get("reasoning_details", ()):
        told.reasoning_data = detail["data"]
    for number, call in enumerate(message.get("tool_calls", ())):
        custom = call.get("custom")
        function: Any = call["function"] if custom is None else {**custom, "arguments": custom["input"]}
        made = pb.ToolCall(id=call.get("id"), name=function.get("name"), arguments=function["arguments"])
        made.is_custom = custom is not None
        _add_call(told, call.get("index", number), made)
    for annotation in message.get("annotations", ()):
        told.citations.append(Citation(**annotation["url_citation"]))


def _add_usage(told: Told, usage: Mapping[str, Any]) -> None:
    counts = {**usage, **usage["prompt_tokens_details"], **usage["completion_tokens_details"]}
    told.usage = Usage(**{name: counts[name] for name in COLUMNS})
    told.cut_by = usage.get("x-legato-end", "")


def _failure(status: int, error: Mapping[str, Any], *, says_when_to_retry: bool) -> Failure:
    return Failure(status, error["type"], error["code"], error["param"], error["message"], says_when_to_retry)


def _failure_of(error: Any, *, has_begun: bool) -> Failure:
    status = rpc_status.from_call(error)
    assert status is not None, error
    refusal: LegatoError = from_status(status)
    wire = refusal.wire
    assert error.code() is wire.grpc_code
    http_status = 0 if has_begun else wire.http_status
    says_when_to_retry = refusal.retry_after_s is not None and not has_begun
    return Failure(http_status, wire.type, wire.code, refusal.param, refusal.message, says_when_to_retry)


def _rates(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns the limits that a client is told; what is left of them depends on the time."""
    return {name: value for name, value in headers if name.startswith("x-ratelimit-limit-")}


def _names(header: str) -> list[str]:
    return header.split(", ") if header else []
