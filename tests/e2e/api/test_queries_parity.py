"""Models, usage and receipts over HTTP and over gRPC: the same figures, the same refusals."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import grpc
import openai
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from cli.supervision.data_folder import socket_of
from legato_protos.auth.v1.auth_pb2_grpc import KeyAdminServiceStub
from legato_protos.auth.v1.callers_pb2 import GrantCallerRequest
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.chat.v1.chat_pb2_grpc import ChatServiceStub
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import format_usd
from services.chassis.rpc.channel import from_rpc_error
from services.rules.usage import named
from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import ask
from tests.support.service import Service
from tests.support.waiting import WAIT_TIMEOUT_S

PERIODS: Final = {pb.SPEND_PERIOD_DAY: "day", pb.SPEND_PERIOD_MONTH: "month", pb.SPEND_PERIOD_TOTAL: "total"}
STATES: Final = {pb.REQUEST_STATE_SETTLED: "settled", pb.REQUEST_STATE_VOID: "void"}
NOTHING: Final = f"{7:032x}"


class Both(NamedTuple):
    """One client of each transport, with the same key."""

    service: Service
    stub: ChatServiceStub
    api_key: str

    def get(self, path: str) -> Any:
        answer = ask(self.service, "GET", path, self.api_key)
        assert answer.status == 200, answer.json
        return answer.json

    def call(self, method: Callable[..., Any], request: Any) -> Any:
        return method(request, metadata=(("authorization", f"Bearer {self.api_key}"),), timeout=WAIT_TIMEOUT_S)

    def refusals(self, path: str, method: Callable[..., Any], request: Any) -> tuple[Any, LegatoError]:
        """Returns the error over HTTP, and the one over gRPC, which has the same status and type."""
        answer = ask(self.service, "GET", path, self.api_key)
        with pytest.raises(grpc.RpcError) as raised:
            self.call(method, request)
        refused = from_rpc_error(raised.value, "the edge")
        told = answer.status, answer.error["type"], answer.error["code"]
        assert told == (refused.wire.http_status, refused.wire.type, refused.wire.code)
        failed: Any = raised.value
        metadata = dict(failed.trailing_metadata())
        assert len(metadata["x-request-id"]) == len(answer.headers["x-request-id"])
        assert ("retry-after" in metadata) == ("retry-after" in answer.headers)
        return answer.error, refused


@pytest.fixture
def stub(service: Service) -> Iterator[ChatServiceStub]:
    with grpc.insecure_channel(f"unix:{service.data}/run/chat.sock") as channel:
        yield ChatServiceStub(channel)


@pytest.fixture
def both(service: Service, stub: ChatServiceStub, api_key: str) -> Both:
    return Both(service, stub, api_key)


def charge_of(usage: pb.Usage) -> dict[str, Any]:
    return {**named(usage), "cost_nanos": usage.cost_nanos, "cost_usd": format_usd(usage.cost_nanos)}


def usage_as_http(page: pb.GetUsageResponse) -> dict[str, Any]:
    return {
        "object": "page",
        "data": [
            {
                "object": "bucket",
                "start_time": bucket.start_time.seconds,
                "end_time": bucket.end_time.seconds,
                "results": [
                    {
                        "object": "usage.result",
                        "model": row.model or None,
                        "key_id": row.key_id or None,
                        "caller": row.caller or None,
                        "requests": row.requests,
                        **charge_of(row.usage),
                    }
                    for row in bucket.rows
                ],
            }
            for bucket in page.buckets
        ],
        "has_more": bool(page.next_page_token),
        "next_page": page.next_page_token or None,
        "balance_usd": format_usd(page.balance_nanos),
        "owed_usd": format_usd(page.owed_nanos),
        "spend_limits": [
            {
                "object": "spend_limit",
                "key_id": limit.key_id or None,
                "period": PERIODS[limit.period],
                "limit_usd": format_usd(limit.limit_nanos),
                "spent_usd": format_usd(limit.spent_nanos),
                "left_usd": format_usd(limit.left_nanos),
                "resets_at": limit.reset_time.seconds if limit.HasField("reset_time") else None,
            }
            for limit in page.spend_limits
        ],
    }


def receipt_as_http(receipt: pb.GetRequestResponse) -> dict[str, Any]:
    return {
        "object": "usage.request",
        "id": receipt.request_id,
        "state": STATES[receipt.state],
        "model": receipt.model,
        "key_id": receipt.key_id,
        "caller": receipt.caller or None,
        "created": receipt.create_time.seconds,
        "ended": receipt.end_time.seconds,
        "end": pb.RequestEnd.Name(receipt.end).removeprefix("REQUEST_END_").lower(),
        "basis": pb.UsageBasis.Name(receipt.basis).removeprefix("USAGE_BASIS_").lower(),
        **charge_of(receipt.usage),
        "held_nanos": receipt.held_nanos,
        "price_version": receipt.price_version,
        "routes_version": receipt.routes_version,
        "first_token_ms": receipt.first_token_ms if receipt.HasField("first_token_ms") else None,
        "duration_ms": receipt.duration_ms,
        "api": pb.RequestApi.Name(receipt.api).removeprefix("REQUEST_API_").lower(),
    }


def test_models_are_the_same(both: Both, account: str) -> None:
    for classes in ("all", "mezzo,forte"):
        both.service.legato("accounts", "set", account, "--classes", classes)
        models = both.call(both.stub.ListModels, pb.ListModelsRequest()).models
        assert [
            {"id": model.model_id, "object": "model", "created": model.create_time.seconds, "owned_by": model.owner}
            for model in models
        ] == both.get("/v1/models")["data"]


def test_usage_and_receipts_are_the_same_also_of_a_program(both: Both, account: str, client: openai.OpenAI) -> None:
    service = both.service
    with grpc.insecure_channel(f"unix:{socket_of('auth', service.data)}") as auth:
        granted = GrantCallerRequest(caller="reports", account_id=account)
        KeyAdminServiceStub(auth).GrantCaller(granted, timeout=WAIT_TIMEOUT_S)
    service.legato("limits", "set", account, "--month", "2", "--total", "3")
    answered = [client.chat.completions.create(model=model, messages=QUESTION).id for model in ("mezzo", "forte")]
    as_program = (("x-legato-account", account), ("x-legato-caller", "reports"))
    chat = pb.Chat(model="mezzo", messages=[pb.Message(role=pb.ROLE_USER, text="Hi")])
    told = both.stub.Complete(pb.CompleteRequest(chat=chat), metadata=as_program, timeout=WAIT_TIMEOUT_S)
    service.settled_balance_nanos(account)

    by_day = pb.GetUsageRequest(group_by=[pb.GROUP_BY_CALLER], bucket_width=pb.BUCKET_WIDTH_DAY)
    for query, request in (
        ("", pb.GetUsageRequest()),
        ("?group_by=model,key", pb.GetUsageRequest(group_by=[pb.GROUP_BY_MODEL, pb.GROUP_BY_KEY])),
        ("?group_by=caller&bucket_width=1d", by_day),
        ("?end_time=86400&limit=5", pb.GetUsageRequest(end_time=Timestamp(seconds=86400), page_size=5)),
        (
            "?end_time=86400&limit=5&page=18000",
            pb.GetUsageRequest(end_time=Timestamp(seconds=86400), page_size=5, page_token="18000"),
        ),
    ):
        assert usage_as_http(both.call(both.stub.GetUsage, request)) == both.get(f"/v1/usage{query}"), query
    for request_id in (*answered, told.request_id):
        receipt = both.call(both.stub.GetRequest, pb.GetRequestRequest(request_id=request_id))
        assert receipt_as_http(receipt) == both.get(f"/v1/usage/requests/{request_id}")
    told_receipt = both.get(f"/v1/usage/requests/{told.request_id}")
    assert (told_receipt["caller"], told_receipt["api"]) == ("reports", "grpc")
    assert both.get(f"/v1/usage/requests/{answered[0]}")["api"] == "chat"
    versions = {target["routes_version"] for target in service.legato("routes", "show")}
    assert versions == {told_receipt["routes_version"]}
    rows = [row for bucket in both.get("/v1/usage?group_by=caller")["data"] for row in bucket["results"]]
    by_caller = {
        caller: sum(row["requests"] for row in rows if row["caller"] == caller) for caller in ("reports", None)
    }
    assert by_caller == {"reports": 1, None: 2}
    # The program reads what the account's keys read.
    read = both.stub.GetUsage(pb.GetUsageRequest(), metadata=as_program, timeout=WAIT_TIMEOUT_S)
    assert usage_as_http(read)["data"] == both.get("/v1/usage")["data"]


def test_refusals_are_the_same(both: Both, account: str) -> None:
    """Compares refusals over both transports, but for the names of fields."""
    stub, day = both.stub, Timestamp(seconds=86400)
    for path, method, request in (
        (f"/v1/usage/requests/{NOTHING}", stub.GetRequest, pb.GetRequestRequest(request_id=NOTHING)),
        ("/v1/usage/requests/nonsense", stub.GetRequest, pb.GetRequestRequest(request_id="nonsense")),
        (
            "/v1/usage?start_time=86400&end_time=86400",
            stub.GetUsage,
            pb.GetUsageRequest(start_time=day, end_time=day),
        ),
    ):
        over_http, over_grpc = both.refusals(path, method, request)
        assert (over_http["message"], over_http["param"]) == (over_grpc.message, over_grpc.param)
    too_many_days = pb.GetUsageRequest(bucket_width=pb.BUCKET_WIDTH_DAY, page_size=32)
    for path, request, param in (
        ("/v1/usage?bucket_width=1d&limit=32", too_many_days, "page_size"),
        ("/v1/usage?page=12", pb.GetUsageRequest(page_token="12"), "page_token"),
    ):
        _, over_grpc = both.refusals(path, stub.GetUsage, request)
        assert (over_grpc.reason, over_grpc.param) == (Reason.REQUEST_INVALID, param)


def test_prompts_are_counted_alike_over_both(both: Both, stub: ChatServiceStub, service: Service) -> None:
    for system, question in (("Be brief.", "Is it raining?"), ("雨 " * 500, "Where? " * 500)):
        message = {"model": "forte", "system": system, "messages": [{"role": "user", "content": question}]}
        path, given = "/v1/messages/count_tokens", json.dumps(message).encode()
        over_http = ask(service, "POST", path, both.api_key, given).json["input_tokens"]
        said = [pb.Message(role=pb.ROLE_SYSTEM, text=system), pb.Message(role=pb.ROLE_USER, text=question)]
        request = pb.CountTokensRequest(chat=pb.Chat(model="forte", messages=said))
        assert both.call(stub.CountTokens, request).prompt_tokens == over_http
        file = service.data / "counted.json"
        texts = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        file.write_text(json.dumps({"model": "forte", "messages": texts}))
        assert service.legato("tokens", str(file))["prompt_tokens"] == over_http


def test_scopes_and_rate_limits_hold_over_both(service: Service, stub: ChatServiceStub, account: str) -> None:
    models_only = Both(service, stub, service.new_key(account, ["models"]))
    over_http, over_grpc = models_only.refusals("/v1/usage", stub.GetUsage, pb.GetUsageRequest())
    assert (over_http["message"], over_grpc.reason) == (over_grpc.message, Reason.SCOPE_MISSING)
    with pytest.raises(grpc.RpcError) as raised:
        models_only.call(stub.CountTokens, pb.CountTokensRequest())
    assert from_rpc_error(raised.value, "the edge").reason is Reason.SCOPE_MISSING
    usage_only = Both(service, stub, service.new_key(account, ["usage"]))
    _, over_grpc = usage_only.refusals("/v1/models", stub.ListModels, pb.ListModelsRequest())
    assert over_grpc.reason is Reason.SCOPE_MISSING
    # A request over either transport takes from the same limit.
    made = service.make_key(account)
    service.legato("keys", "set", made.key.key_id, "--requests-per-minute", "1")
    limited = Both(service, stub, made.api_key)
    limited.call(stub.ListModels, pb.ListModelsRequest())
    over_http, over_grpc = limited.refusals("/v1/models", stub.ListModels, pb.ListModelsRequest())
    assert (over_http["message"], over_grpc.reason) == (over_grpc.message, Reason.RATE_LIMITED)
