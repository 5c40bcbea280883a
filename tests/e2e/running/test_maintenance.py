"""Maintenance: new chats are kept out, and all else goes on."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.chats import CHAT
from tests.e2e.raw_http import Answer, OpenChat, ask, post_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

MESSAGE = "Nous revenons à midi."
OFF = {"maintenance": "off", "message": None, "retry_after_s": None, "started_at": None}


@contextmanager
def maintenance(service: Service) -> Iterator[None]:
    started = service.legato("maintenance", "on", "--message", MESSAGE, "--retry-after", "300")
    assert (started["maintenance"], started["message"], started["retry_after_s"]) == ("on", MESSAGE, 300)
    try:
        yield
    finally:
        assert service.legato("maintenance", "off") == OFF


def answered(service: Service, api_key: str) -> Answer:
    """An edge that has not found an auth again which was killed says that it is away."""

    def answer() -> Answer | None:
        given = post_chat(service, api_key, CHAT)
        is_away = given.status == 503 and given.error["code"] == "service_unavailable"
        return None if is_away else given

    found = wait_until(answer)
    assert found is not None
    return found


def assert_kept_out(service: Service, api_key: str) -> None:
    """Often enough to meet both edges."""
    for _ in range(8):
        refused = answered(service, api_key)
        assert refused.status == 503
        assert refused.error == {"message": MESSAGE, "type": "api_error", "param": None, "code": "maintenance"}
        assert refused.headers["retry-after"] == "300"


def test_new_chats_are_kept_out_and_all_else_goes_on(several: Service, upstream: Upstream) -> None:
    service = several
    account = service.new_account()
    api_key = service.new_key(account)
    upstream.replies.append(Reply(contents=["It", " rains"], event_delay_s=0.5))
    running = OpenChat(service, api_key, CHAT)
    running.read_until(b'"It"')
    with maintenance(service):
        assert_kept_out(service, api_key)
        running.read_until(b"[DONE]")
        running.leave()
        for path in ("/v1/models", "/v1/models/forte", "/v1/usage"):
            assert ask(service, "GET", path, api_key).status == 200
        assert post_chat(service, "sk-legato-unknown", CHAT).status == 401
        # A process that is killed finds it again: auth in its database, an edge before it serves.
        for process in ("auth", "edge-1"):
            service.kill(process)
            assert_kept_out(service, api_key)
        assert service.legato("maintenance", "status")["message"] == MESSAGE
        assert len(upstream.requests) == 1
    for _ in range(8):
        assert answered(service, api_key).status == 200
    service.settled_balance_nanos(account)
    assert len(service.entries(account)) == 9
    assert service.audit() == []
