"""Signals for the service's operators: one trace a chat, logs that can be told apart, figures, and readiness."""

import secrets
import signal
from typing import Any

import openai
import pytest

from tests.e2e.chats import QUESTION, USAGE
from tests.e2e.operations import PROCESSES, lines_of, look_at, openmetrics_of, value_of
from tests.e2e.raw_http import post_chat
from tests.support.servers.collector import Collector
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

SERVER, CLIENT = 2, 3
SETTLE = "legato.metering.v1.MeteringService/Settle"


@pytest.fixture
def trace_id() -> str:
    return secrets.token_hex(16)


@pytest.fixture
def traceparent(trace_id: str) -> dict[str, str]:
    """The header of a client whose trace the chat joins."""
    return {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}


def test_one_chat_is_one_trace_through_every_process(
    service: Service, collector: Collector, client: openai.OpenAI, trace_id: str, traceparent: dict[str, str]
) -> None:
    chat = client.chat.completions.with_raw_response.create(
        model="mezzo", messages=QUESTION, stream=True, extra_headers=traceparent
    )
    request_id = chat.headers["x-request-id"]
    assert list(chat.parse())
    last_ones = {"chat mezzo", "chat upstream-model", SETTLE}
    wait_until(lambda: last_ones <= {span.name for span in collector.trace(trace_id)})
    spans = collector.trace(trace_id)
    by_name = {span.name: span for span in spans}
    edge = by_name["chat mezzo"]
    assert (edge.kind, edge.parent_id) == (SERVER, "00f067aa0ba902b7")
    assert edge.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "legato",
        "gen_ai.request.model": "mezzo",
        "gen_ai.response.model": "mezzo",
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.input_tokens": USAGE["prompt_tokens"],
        "gen_ai.usage.output_tokens": USAGE["completion_tokens"],
        "http.request.method": "POST",
        "legato.end": "complete",
        "legato.request_id": request_id,
        "legato.stream": True,
    }
    steps = [span.name for span in spans if span.parent_id == edge.span_id and span.service == "legato-edge"]
    assert steps == ["auth", "rate", "body", "reserve", "first_piece", "relay"]
    router = by_name["legato.router.v1.RouterService/Chat"]
    assert (router.kind, router.parent_id, router.service) == (SERVER, edge.span_id, "legato-router")
    upstream = by_name["chat upstream-model"]
    assert (upstream.kind, upstream.parent_id, upstream.service) == (CLIENT, router.span_id, "legato-router")
    assert upstream.attributes["gen_ai.provider.name"] == upstream.attributes["legato.provider"] == "upstream"
    assert upstream.attributes["gen_ai.response.model"] == "upstream-model"
    assert upstream.attributes["gen_ai.usage.output_tokens"] == USAGE["completion_tokens"]
    assert upstream.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    # A short chat is admitted by its Reserve.
    for operation in ("Reserve", "Settle"):
        metering = by_name[f"legato.metering.v1.MeteringService/{operation}"]
        assert (metering.kind, metering.parent_id, metering.service) == (SERVER, edge.span_id, "legato-metering")
    # The edge has ended the answer with its last piece, while the router still closes the call.
    assert edge.began_ns <= router.began_ns <= upstream.began_ns <= upstream.ended_ns <= router.ended_ns
    assert upstream.began_ns <= edge.ended_ns


def test_histograms_lead_to_the_trace_of_a_chat(
    service: Service, collector: Collector, client: openai.OpenAI, trace_id: str, traceparent: dict[str, str]
) -> None:
    client.chat.completions.create(model="mezzo", messages=QUESTION, extra_headers=traceparent)
    wait_until(lambda: "chat upstream-model" in {span.name for span in collector.trace(trace_id)})
    for process, names in {
        "edge": {"gen_ai_server_request_duration_seconds", "legato_step_duration_seconds"},
        "router": {"gen_ai_client_operation_duration_seconds"},
    }.items():
        leading = {
            family.name
            for family in openmetrics_of(service, process)
            for sample in family.samples
            if sample.exemplar is not None and sample.exemplar.labels == {"trace_id": trace_id}
        }
        assert names <= leading, process


def test_chat_that_fails_says_so_in_its_trace(
    service: Service,
    collector: Collector,
    upstream: Upstream,
    api_key: str,
    trace_id: str,
    traceparent: dict[str, str],
) -> None:
    upstream.default_reply = Reply(status=500)
    assert post_chat(service, api_key, {"model": "mezzo", "messages": QUESTION}, headers=traceparent).status == 502
    wait_until(lambda: {"chat mezzo", "chat upstream-model"} <= {span.name for span in collector.trace(trace_id)})
    by_name = {span.name: span for span in collector.trace(trace_id)}
    assert by_name["chat upstream-model"].attributes["error.type"] == "500"
    assert by_name["chat mezzo"].attributes["error.type"] == "UPSTREAM_FAILED"
    assert by_name["chat mezzo"].attributes["http.response.status_code"] == 502
    assert by_name["chat mezzo"].is_error


def test_prompt_that_travels_by_itself_is_traced_like_any_other(
    service: Service, collector: Collector, client: openai.OpenAI, trace_id: str, traceparent: dict[str, str]
) -> None:
    client.chat.completions.create(
        model="mezzo", messages=[{"role": "user", "content": "la " * 100_000}], extra_headers=traceparent
    )
    wait_until(lambda: "chat upstream-model" in {span.name for span in collector.trace(trace_id)})


def test_provider_is_not_told_of_our_traces_unless_it_is_to_be(
    client: openai.OpenAI, upstream: Upstream, traceparent: dict[str, str]
) -> None:
    client.chat.completions.create(model="mezzo", messages=QUESTION, extra_headers=traceparent)
    assert "traceparent" not in {name.lower() for name in upstream.requests[0].headers}


def test_lines_of_one_request_have_its_id_in_every_process(
    service: Service, client: openai.OpenAI, trace_id: str, traceparent: dict[str, str]
) -> None:
    chat = client.chat.completions.with_raw_response.create(model="mezzo", messages=QUESTION, extra_headers=traceparent)
    request_id = chat.headers["x-request-id"]

    def lines(process: str) -> list[dict[str, str]]:
        return [line for line in lines_of(service, process) if line.get("request_id") == request_id]

    for process in ("edge", "router"):
        [line] = wait_until(lambda: [line for line in lines(process) if line["level"] != "debug"])  # noqa: B023
        assert (line["event"], line["trace_id"]) == ("chat.ended", trace_id)
    # The router tells which routes the model was chosen by, as its metrics do.
    [version] = {line["routes_version"] for line in lines("router") if line["event"] == "chat.ended"}
    assert value_of(service, "router", "legato_routes_info", version=version) == 1


def test_figures_of_a_chat_are_told_by_each_process_that_had_to_do_with_it(
    service: Service, client: openai.OpenAI, account: str
) -> None:
    def figures() -> list[float]:
        return [
            value_of(
                service, "edge", "legato_chats_total", **{"class": "fortissimo", "outcome": "complete", "api": "chat"}
            ),
            value_of(
                service, "edge", "gen_ai_server_time_to_first_token_seconds_count", gen_ai_request_model="fortissimo"
            ),
            value_of(service, "edge", "legato_step_duration_seconds_count", step="reserve"),
            value_of(service, "router", "gen_ai_client_operation_duration_seconds_count"),
            value_of(service, "router", "legato_upstream_attempts_total", outcome="answered"),
            value_of(service, "metering", "legato_operations_total", operation="settle", outcome="done"),
        ]

    before = figures()
    client.chat.completions.create(model="fortissimo", messages=QUESTION)
    service.settled_balance_nanos(account)
    assert [after - then for after, then in zip(figures(), before, strict=True)] == [1] * len(before)
    assert value_of(service, "auth", "legato_watches") == 1
    assert value_of(service, "auth", "legato_verifications_total", outcome="verified") > 0
    assert value_of(service, "edge", "legato_exchange_message_items_count", exchange="metering") > 0


def test_tokens_that_are_counted_are_those_that_are_charged(
    service: Service, client: openai.OpenAI, account: str, upstream: Upstream
) -> None:
    def tokens() -> list[float]:
        kinds = [{"class": "mezzo", "gen_ai_token_type": kind, "api": "chat"} for kind in ("input", "output")]
        return [value_of(service, "edge", "legato_tokens_total", **kind) for kind in kinds]

    before = tokens()
    # An empty answer costs nothing, whatever its prompt was.
    upstream.replies.append(Reply(contents=[], usage={"prompt_tokens": 11, "completion_tokens": 0, "total_tokens": 11}))
    for _ in range(2):
        client.chat.completions.create(model="mezzo", messages=QUESTION)
    service.settled_balance_nanos(account)
    [row] = service.usage(account)
    charged = [row.usage.prompt_tokens, row.usage.completion_tokens]
    assert [after - then for after, then in zip(tokens(), before, strict=True)] == charged == [11, 7]


def test_refusals_are_counted_by_their_reason(service: Service, api_key: str) -> None:
    def refusals(reason: str) -> float:
        return value_of(service, "edge", "legato_refusals_total", reason=reason, api="chat")

    before = [refusals("KEY_INVALID"), refusals("MODEL_UNKNOWN")]
    assert post_chat(service, "sk-legato-unknown", {"model": "mezzo", "messages": QUESTION}).status == 401
    assert post_chat(service, api_key, {"model": "unknown", "messages": QUESTION}).status == 400
    assert [refusals("KEY_INVALID"), refusals("MODEL_UNKNOWN")] == [before[0] + 1, before[1] + 1]


def test_live_streams_are_counted_while_they_run(service: Service, client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.default_reply = Reply(stall_after=3)
    stream = client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True)
    next(iter(stream))
    assert value_of(service, "edge", "legato_live_streams") == 1
    assert value_of(service, "edge", "legato_journal_depth") >= 1
    stream.close()
    wait_until(lambda: value_of(service, "edge", "legato_live_streams") == 0)


@pytest.mark.parametrize("process", PROCESSES)
def test_every_process_is_healthy(service: Service, process: str) -> None:
    assert look_at(service, process, "/healthz").text == "ok\n"


def test_edge_stays_ready_while_requests_wait_for_a_service(service: Service) -> None:
    assert look_at(service, "edge", "/readyz").text == "ready\n"
    assert value_of(service, "edge", "legato_ready") == 1
    service.signal("metering", signal.SIGSTOP)
    try:
        wait_until(lambda: look_at(service, "edge", "/readyz").text == "ready, waiting for metering\n")
        assert value_of(service, "edge", "legato_replica_silences_total", peer="metering") >= 1
        assert look_at(service, "edge", "/readyz").status == 200
        assert value_of(service, "edge", "legato_ready") == 1
        assert value_of(service, "edge", "legato_replicas_usable", peer="metering") == 0
    finally:
        service.signal("metering", signal.SIGCONT)
    wait_until(lambda: look_at(service, "edge", "/readyz").text == "ready\n")


def test_debug_lines_tell_what_was_refused_which_models_were_asked_and_what_was_written(
    service: Service, upstream: Upstream, client: openai.OpenAI
) -> None:
    served = client.chat.completions.with_raw_response.create(model="mezzo", messages=QUESTION)
    upstream.replies.append(Reply(status=401))
    with pytest.raises(openai.InternalServerError) as failed:
        client.with_options(max_retries=0).chat.completions.create(model="mezzo", messages=QUESTION)
    refused = post_chat(service, "sk-legato-unknown", {"model": "mezzo", "messages": QUESTION})
    served_id, failed_id, refused_id = (
        headers["x-request-id"] for headers in (served.headers, failed.value.response.headers, refused.headers)
    )

    def told(process: str, event: str, request_id: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = lines_of(service, process)
        return [line for line in lines if line["event"] == event and line.get("request_id") == request_id]

    wait_until(lambda: len(told("metering", "operation.ended", served_id)) == 2)
    assert [line["name"] for line in told("metering", "operation.ended", served_id)] == ["Reserve", "Settle"]
    wait_until(lambda: told("router", "model.failed", failed_id))
    assert [line["model_name"] for line in told("router", "model.called", served_id)] == ["upstream-model"]
    assert [(line["attempt"], line["http_status"]) for line in told("router", "model.failed", failed_id)] == [(1, 401)]
    wait_until(lambda: told("edge", "request.refused", refused_id))
    assert [(line["http_status"], line["reason"]) for line in told("edge", "request.refused", refused_id)] == [
        (401, "KEY_INVALID")
    ]
