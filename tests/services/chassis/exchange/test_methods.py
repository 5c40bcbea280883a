import contextlib

from legato_protos.router.v1 import router_pb2 as router
from services.chassis.errors import LegatoError
from services.chassis.exchange.client import ExchangeClient
from services.chassis.telemetry.tracing import work_on
from services.chassis.timing.deadlines import SystemClock
from tests.services.chassis.exchange.talker import ask, opening
from tests.support.tracing import RecordedSpan, recording_tracer


async def test_calls_of_a_trace_are_spans_of_it(client: ExchangeClient, spans: list[RecordedSpan]) -> None:
    assert await ask(client, "untraced") == "untraced"
    parent = recording_tracer(SystemClock(), []).begin("chat")
    assert parent is not None
    work_on(parent)
    for account_id in ("poor", "bug"):
        with contextlib.suppress(LegatoError):
            await ask(client, account_id)
    call = client.open("Chat", opening(pieces=1), router.ChatResponse)
    while await call.receive() is not None:
        pass
    assert [(span.name, span.parent_id, span.trace_id) for span in spans] == [
        (f"legato.router.v1.RouterService/{method}", parent.span_id, parent.trace_id)
        for method in ("GetBalance", "GetBalance", "Chat")
    ]
    assert [span.attributes.get("error.type") for span in spans] == ["CREDITS_EXHAUSTED", "INTERNAL", None]
