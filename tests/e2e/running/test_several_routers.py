"""Two edges and two routers on one machine."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from signal import SIGKILL

import pytest

from cli.connection import call_service
from legato_protos.router.v1.router_pb2 import ListTargetsRequest, ReloadRoutesRequest
from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import OpenChat, post_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

CHAT = {"model": "mezzo", "messages": QUESTION}
# However four chats meet the edges, one edge has two of them, and divides them between the routers.
CHATS = 4
# Long enough for a router to be killed in the middle, on a slow machine as well.
LONG = Reply(contents=[" rain"] * 200, event_delay_s=0.05)
LIMIT = 3


def running_by_router(service: Service) -> dict[str, int]:
    return {
        name: max(target.running for target in call_service(router.ListTargets, ListTargetsRequest()).targets)
        for name, router in service.services.routers.items()
    }


def test_a_router_is_killed_and_the_chats_of_the_other_go_on(several: Service, upstream: Upstream) -> None:
    account = several.new_account()
    api_key = several.new_key(account)
    upstream.replies.extend([LONG] * CHATS)
    # Their connections end with their answers.
    chats = [OpenChat(several, api_key, {**CHAT, "stream": True}, {"Connection": "close"}) for _ in range(CHATS)]
    for chat in chats:
        chat.read_until(b'" rain"')
    running = running_by_router(several)
    assert set(running) == {"router-1", "router-2"}
    assert sum(running.values()) == CHATS
    assert min(running.values()) >= 1

    with several.restart_of("router-1"):
        several.signal("router-1", SIGKILL)
        readers = [threading.Thread(target=chat.read_to_end) for chat in chats]
        for reader in readers:
            reader.start()
        for _ in range(CHATS):
            assert post_chat(several, api_key, CHAT).status == 200
        for reader in readers:
            reader.join()
    broken = [chat for chat in chats if b'"error"' in chat.received]
    assert len(broken) == running["router-1"]
    assert all(chat.received.count(b'" rain"') == 200 for chat in chats if chat not in broken)
    assert several.states()["router-2"]["restarts"] == 0
    for chat in chats:
        chat.leave()
    several.settled_balance_nanos(account)
    assert several.audit() == []


def test_a_router_that_is_back_serves_again(several: Service, upstream: Upstream) -> None:
    several.kill("router-2")
    api_key = several.new_key(several.new_account())

    def both_are_used() -> bool:
        upstream.replies.extend([Reply(contents=["It", " rains"], stall_after=2)] * CHATS)
        chats = [OpenChat(several, api_key, {**CHAT, "stream": True}) for _ in range(CHATS)]
        try:
            for chat in chats:
                chat.read_until(b'"It"')
            return min(running_by_router(several).values()) >= 1
        finally:
            for chat in chats:
                chat.leave()

    wait_until(both_are_used)


def test_commands_address_every_router(several: Service) -> None:
    reloaded = several.legato("routes", "reload")
    assert [(one["router"], one["reloaded"]) for one in reloaded] == [("router-1", True), ("router-2", True)]
    assert len({one["routes_version"] for one in reloaded}) == 1
    assert {row["router"] for row in several.legato("routes", "show")} == {"router-1", "router-2"}
    health = {row["name"]: row["health"] for row in several.legato("status")}
    assert {health[name] for name in ("router-1", "router-2", "edge-1", "edge-2")} == {"serving"}


def test_router_that_has_not_read_the_changed_file_is_seen_by_the_version_of_its_routes(several: Service) -> None:
    def versions() -> dict[str, str]:
        return {row["router"]: row["routes_version"] for row in several.legato("routes", "show")}

    routes, before = several.read_routes(), versions()
    several.write_routes(f"# The same.\n{routes}")
    several.legato("routes", "reload")
    assert versions() == before
    several.write_routes(f'character = "legato-small-1"\n{routes}')
    call_service(several.services.routers["router-2"].ReloadRoutes, ReloadRoutesRequest())
    after = versions()
    assert (after["router-1"], after["router-1"] != after["router-2"]) == (before["router-1"], True)
    several.follow_routes(routes)
    assert versions() == before


@pytest.fixture
def limited(several: Service, upstream: Upstream) -> Iterator[Service]:
    """The model takes three chats at once."""
    routes = several.read_routes()
    several.follow_routes(routes.replace("[models.wide]", f"[models.wide]\nconcurrency = {LIMIT}"))
    yield several
    several.follow_routes(routes)


def chat_until(service: Service, served: int) -> Counter[int]:
    """Has chats served, by more clients than the model takes; returns all by their status."""
    statuses: Counter[int] = Counter()

    def chat(api_key: str, number: int) -> None:
        while statuses[200] < served:
            status = post_chat(service, api_key, {**CHAT, "stream": number % 2 == 0}).status
            statuses[status] += 1
            time.sleep(0.05 if status == 429 else 0)

    api_key = service.new_key(service.new_account())
    clients = [threading.Thread(target=chat, args=(api_key, number)) for number in range(4 * LIMIT)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return statuses


def test_concurrency_of_a_model_is_one_limit_of_all_routers(limited: Service, upstream: Upstream) -> None:
    upstream.default_reply = Reply(contents=["It", " rains"], event_delay_s=0.1)
    statuses = chat_until(limited, served=16)
    assert set(statuses) == {200, 429}
    assert upstream.most_running == LIMIT
    limited.kill("metering")
    upstream.most_running = 0
    limited.follow_routes(limited.read_routes().replace(f"concurrency = {LIMIT}", "concurrency = 1"))
    chat_until(limited, served=10)
    assert upstream.most_running == 1
    shown = [row for row in limited.legato("routes", "show") if row["class"] == "mezzo"]
    assert [row["limit"] for row in shown] == [1, 1]
    assert sum(row["share"] for row in shown) <= 1


def test_places_of_a_killed_router_come_back(limited: Service, upstream: Upstream) -> None:
    upstream.default_reply = Reply(contents=["It", " rains"], stall_after=2)
    api_key = limited.new_key(limited.new_account())

    def open_all() -> list[OpenChat]:
        chats: list[OpenChat] = []

        def is_full() -> bool:
            chat = OpenChat(limited, api_key, {**CHAT, "stream": True})
            chat.read_until(b"\r\n")
            if b" 200 " in chat.received:
                chats.append(chat)
            else:
                chat.leave()
            return len(chats) == LIMIT

        wait_until(is_full)
        return chats

    first = open_all()
    limited.kill("router-1")
    limited.kill("router-2")
    for chat in first:
        chat.leave()
    wait_until(lambda: not upstream.running)
    upstream.most_running = 0
    for chat in open_all():
        chat.leave()
    assert upstream.most_running == LIMIT
