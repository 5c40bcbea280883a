"""The id of each request."""

from typing import Any

from services.chassis.http.asgi import HttpScope, Receive, Send
from services.chassis.http.request_id import RequestIdMiddleware, new_request_id


def test_ids_sort_by_time_and_are_version_7_uuids() -> None:
    ids = [new_request_id() for _ in range(3)]
    assert len(set(ids)) == 3
    assert {(len(each), each[12]) for each in ids} == {(32, "7")}
    assert sorted(each[:12] for each in ids) == [each[:12] for each in ids]


async def test_the_response_has_the_id_that_the_application_sees() -> None:
    seen: list[str] = []
    sent: list[Any] = []

    async def app(scope: HttpScope, receive: Receive, send: Send) -> None:
        seen.append(scope["state"]["request_id"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any: ...

    await RequestIdMiddleware(app)({"type": "http"}, receive, send)
    assert sent[0]["headers"] == [(b"a", b"b"), (b"x-request-id", seen[0].encode())]
    assert sent[1] == {"type": "http.response.body", "body": b""}
