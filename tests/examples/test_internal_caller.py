import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc_testing
import pytest

from examples.internal_caller import ask, channel_to
from legato_protos.auth.v1 import auth_pb2
from legato_protos.metering.v1 import metering_pb2
from legato_protos.router.v1 import router_pb2
from legato_protos.type.v1.usage_pb2 import Usage

HELLO = router_pb2.ChatResponse(contents=["Hel", "lo"], prompt_tokens=12, output_tokens=2)
FINISHED = router_pb2.ChatResponse(
    finished=router_pb2.Finished(
        finish_reason="stop",
        usage=Usage(prompt_tokens=11, completion_tokens=2),
        usage_source=router_pb2.USAGE_SOURCE_PROVIDER,
    ),
    prompt_tokens=12,
    output_tokens=2,
)


def channel_of(file: Any) -> Any:
    return grpc_testing.channel(file.DESCRIPTOR.services_by_name.values(), grpc_testing.strict_real_time())


class FarEnd:
    """The three services, played: the router sends the responses it is given, and then ends with `code`."""

    def __init__(self, responses: Sequence[router_pb2.ChatResponse], code: grpc.StatusCode) -> None:
        self.auth, self.meter, self.route = (channel_of(file) for file in (auth_pb2, metering_pb2, router_pb2))
        self.seen: dict[str, Any] = {}
        self.may_break = threading.Event()
        self._responses, self._code = responses, code
        self._player = threading.Thread(target=self._play, daemon=True)
        self._player.start()

    def _play(self) -> None:
        principal = auth_pb2.Principal(account_id="acct_1", key_id="key_1")
        self._answer(self.auth, auth_pb2, "AuthService", "Verify", auth_pb2.VerifyResponse(principal=principal))
        self._answer(self.meter, metering_pb2, "MeteringService", "Reserve", metering_pb2.ReserveResponse())
        self._chat()
        self._answer(self.meter, metering_pb2, "MeteringService", "Settle", metering_pb2.SettleResponse())

    def _answer(self, channel: Any, file: Any, service: str, method: str, response: Any) -> None:
        descriptor = file.DESCRIPTOR.services_by_name[service].methods_by_name[method]
        _, self.seen[method], rpc = channel.take_unary_unary(descriptor)
        rpc.send_initial_metadata(())
        rpc.terminate(response, (), grpc.StatusCode.OK, "")

    def _chat(self) -> None:
        descriptor = router_pb2.DESCRIPTOR.services_by_name["RouterService"].methods_by_name["Chat"]
        _, rpc = self.route.take_stream_stream(descriptor)
        self.seen["Chat"] = rpc.take_request()
        rpc.send_initial_metadata(())
        for response in self._responses:
            rpc.send_response(response)
        if self._code is not grpc.StatusCode.OK:
            # A call that breaks forgets what was not read yet.
            self.may_break.wait(timeout=60)
        rpc.terminate((), self._code, "")

    def settled(self) -> metering_pb2.SettleRequest:
        self._player.join(timeout=60)
        settlement: metering_pb2.SettleRequest = self.seen["Settle"]
        return settlement


def test_an_answer_is_held_given_and_settled_under_one_id() -> None:
    far_end = FarEnd([HELLO, FINISHED], grpc.StatusCode.OK)
    assert "".join(ask(far_end.auth, far_end.meter, far_end.route, "sk-legato-x", "Say hello.")) == "Hello"
    settled = far_end.settled()
    assert far_end.seen["Verify"].api_key == "sk-legato-x"
    assert far_end.seen["Reserve"].request_id == far_end.seen["Chat"].open.request_id == settled.request_id
    assert far_end.seen["Reserve"].key_id == "key_1"
    assert far_end.seen["Chat"].open.grant.output_tokens == far_end.seen["Reserve"].output_tokens
    assert settled.usage == Usage(prompt_tokens=11, completion_tokens=2)
    assert (settled.basis, settled.end) == (metering_pb2.BASIS_PROVIDER, metering_pb2.END_COMPLETE)


def test_an_answer_that_breaks_is_charged_as_far_as_it_came() -> None:
    far_end = FarEnd([HELLO], grpc.StatusCode.UNAVAILABLE)
    answer = ask(far_end.auth, far_end.meter, far_end.route, "sk-legato-x", "Say hello.")
    assert [next(answer), next(answer)] == ["Hel", "lo"]
    far_end.may_break.set()
    with pytest.raises(grpc.RpcError):
        next(answer)
    settled = far_end.settled()
    assert settled.usage == Usage(prompt_tokens=12, completion_tokens=2)
    assert (settled.basis, settled.end) == (metering_pb2.BASIS_COUNTED, metering_pb2.END_UPSTREAM_CUT)


def test_a_reader_who_leaves_is_charged_for_what_was_delivered() -> None:
    far_end = FarEnd([HELLO, FINISHED], grpc.StatusCode.OK)
    answer = ask(far_end.auth, far_end.meter, far_end.route, "sk-legato-x", "Say hello.")
    assert next(answer) == "Hel"
    answer.close()  # type: ignore[attr-defined]
    settled = far_end.settled()
    assert settled.usage == Usage(prompt_tokens=12, completion_tokens=2)
    assert settled.end == metering_pb2.END_CLIENT_GONE


def test_any_of_several_routers_that_answers_is_used(tmp_path: Path) -> None:
    """As `legato up` with three routers names them: one was killed, and consoles have sockets of their own."""
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"unix:{tmp_path}/router-2.sock")
    server.start()
    for name in ("router-1.sock", "router-3.sock", "router-2-console.sock", "router.log"):
        (tmp_path / name).touch()
    with channel_to("router", tmp_path) as channel:
        call: Any = channel.unary_unary("/nothing/Here")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=60)
    server.stop(None)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_service_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="No metering answers"):
        channel_to("metering", tmp_path)
