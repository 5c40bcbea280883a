"""What an account's owner is told of a good chat, a refused one, one that fails and one that breaks off."""

import time
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from cli.supervision.data_folder import socket_of
from legato_protos.metering.v1 import chat_outcomes_pb2 as pb
from legato_protos.metering.v1.chat_outcomes_pb2_grpc import ChatOutcomeServiceStub
from tests.e2e.chats import CHAT, QUESTION
from tests.e2e.raw_http import ask, post_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until


def outcomes(service: Service, account: str) -> pb.ChatOutcomes:
    """Those of the last hour, and of the one that begins."""
    hour_s = int(time.time()) // 3600 * 3600
    request = pb.GetChatOutcomesRequest(
        account_id=account,
        start_times=[Timestamp(seconds=hour_s - 3600)],
        end_time=Timestamp(seconds=hour_s + 7200),
    )
    with grpc.insecure_channel(f"unix:{socket_of('metering', service.data)}") as channel:
        stub: Any = ChatOutcomeServiceStub(channel)
        found: pb.ChatOutcomes = stub.GetChatOutcomes(request).total
    return found


def test_owner_is_told_which_chats_failed_and_how_long_the_others_took(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    answer = post_chat(service, api_key, CHAT)
    assert answer.status == 200
    receipt = ask(service, "GET", f"/v1/usage/requests/{answer.headers['x-request-id']}", api_key).json
    assert 0 <= receipt["first_token_ms"] <= receipt["duration_ms"]
    assert post_chat(service, api_key, {"model": "mezzo"}).status == 400
    upstream.default_reply = Reply(status=500, body='{"error":{"message":"overloaded"}}')
    failing = {"model": "fortissimo", "messages": QUESTION, "stream": True}
    failed = post_chat(service, api_key, failing)
    assert failed.status == 502
    upstream.default_reply = Reply(contents=["It", " rains", "."], cut_after=3)
    assert post_chat(service, api_key, failing).status == 200
    wait_until(lambda: sum(each.requests for each in outcomes(service, account).failures) == 3)
    found = outcomes(service, account)
    assert {each.reason: (each.requests, each.cut_requests) for each in found.failures} == {
        "REQUEST_INVALID": (1, 0),
        "UPSTREAM_FAILED": (2, 1),
    }
    # The one that broke off is charged, has begun, and was not whole.
    assert (found.charged_requests, found.first_token.chats, found.duration.chats) == (2, 2, 1)
    assert abs(found.duration.p50_ms - receipt["duration_ms"]) <= 1 + 0.05 * receipt["duration_ms"]
    voided = ask(service, "GET", f"/v1/usage/requests/{failed.headers['x-request-id']}", api_key).json
    assert (voided["state"], voided["first_token_ms"]) == ("void", None)
    assert voided["duration_ms"] is not None
