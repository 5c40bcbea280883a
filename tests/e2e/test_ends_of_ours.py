"""How chats end when a process of ours is killed or its machine is lost, as the page about billing lists it."""

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import OpenChat, post_chat
from tests.e2e.rules import INPUT_NANOS, OUTPUT_NANOS, Charged, check_books, read_rules, usage_to_charge
from tests.service import Service, wait_for_requests, wait_until
from tests.upstream import Recorded, Reply, Upstream

RULES = read_rules("What failed of ours")
CREDIT_NANOS = 5 * 10**9

CHAT = {"model": "mezzo", "messages": QUESTION, "stream": True}
# An answer of this class is streamed to us even when it is wanted whole.
WHOLE_CHAT = {"model": "fortissimo", "messages": QUESTION}

RAIN = ["It", " rains", "."]
USAGE = {"prompt_tokens": 11, "completion_tokens": 7}

SILENT = Reply(stall_after=1)
HALF = Reply(contents=RAIN, stall_after=3)
SLOW = Reply(contents=RAIN, usage=USAGE, event_delay_s=0.3)


@dataclass(frozen=True)
class Running:
    """A chat on an account of its own, and the rule by which it is to end."""

    what: str
    account: str
    chat: OpenChat
    request: Recorded


class House:
    """A service whose processes can be made to die at places that have a name."""

    def __init__(self, service: Service, upstream: Upstream, failpoints: Path) -> None:
        self.service = service
        self.prompt_tokens = 0
        self._upstream = upstream
        self._failpoints = failpoints

    def open(self, what: str, reply: Reply, body: dict[str, Any] = CHAT, *, read: bytes = b"") -> Running:
        account = self.service.new_account()
        self._upstream.replies.append(reply)
        chat = OpenChat(self.service, self.service.new_key(account), body)
        request = wait_for_requests(self._upstream, len(self._upstream.requests) + 1)
        chat.read_until(read)
        return Running(what, account, chat, request)

    def kill_at(self, place: str) -> None:
        """The process that comes there next dies."""
        (self._failpoints / place).write_text("1")

    def check(self, running: Running) -> None:
        """What the client saw, and what is in the books."""
        running.chat.leave()
        rule, received = RULES[running.what], running.chat.received
        delivered = "".join(word for word in RAIN if f'"{word}"'.encode() in received)
        assert (delivered != "") == rule.seen.startswith(("all", "a part", "the piece"))
        assert (b"[DONE]" in received) == (rule.seen == "all of it")
        assert (b'data: {"error":' in received) == rule.seen.endswith("an error")
        assert received.startswith(b"HTTP/1.1 503") == (rule.seen == "503")
        assert bool(received) == (rule.seen != "a broken connection")
        usage = usage_to_charge(rule, USAGE, self.prompt_tokens, delivered)
        check_books(self.service, running.account, CREDIT_NANOS, rule, usage)


@pytest.fixture(scope="module")
def shared_house(shared_upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    failpoints = tmp_path_factory.mktemp("failpoints")
    environ = {"LEGATO_FAILPOINTS": str(failpoints), "LEGATO_DRAIN_S": "1", "LEGATO_SWEEP_INTERVAL_S": "0.2"}
    with Service(shared_upstream, environ) as service:
        house = House(service, shared_upstream, failpoints)
        shared_upstream.replies.append(Reply(usage=None))
        counted = post_chat(service, service.new_key(service.new_account()), {"model": "mezzo", "messages": QUESTION})
        house.prompt_tokens = counted.json["usage"]["prompt_tokens"]
        yield house


@pytest.fixture
def house(shared_house: House, upstream: Upstream) -> Iterator[House]:
    yield shared_house
    assert shared_house.service.audit() == []


def test_edge_killed(house: House) -> None:
    service = house.service
    chats = [
        house.open("Edge killed before the first token", SILENT),
        house.open("Edge killed in mid-stream", HALF, read=b'" rains"'),
        house.open("Edge killed before a whole answer", HALF, WHOLE_CHAT),
        gone := house.open("Edge killed after the client had gone", HALF, read=b'" rains"'),
        ended := house.open("Edge killed after the end", SLOW, read=b'"It"'),
    ]
    # So that nothing is settled before the edge dies, though two of the chats end.
    service.signal("metering", signal.SIGSTOP)
    gone.chat.leave()
    wait_until(lambda: gone.request.aborted)
    ended.chat.read_until(b"[DONE]")
    with service.restart_of("edge-1"):
        service.signal("edge-1", signal.SIGKILL)
        service.signal("metering", signal.SIGCONT)
    for running in chats:
        if running is not gone:
            running.chat.read_to_end()
        house.check(running)


def test_edge_killed_between_the_first_piece_and_its_mark(house: House) -> None:
    house.kill_at("edge.relayed_first")
    with house.service.restart_of("edge-1"):
        running = house.open("Edge killed at the first piece", Reply(contents=["It"], stall_after=2), read=b'"It"')
        running.chat.read_to_end()
    house.check(running)
    [loss] = house.service.entries(running.account)
    assert (loss.end, loss.basis) == ("crashed", "journal")
    assert loss.loss_nanos == -(house.prompt_tokens * INPUT_NANOS + OUTPUT_NANOS)


def test_edge_asked_to_end(house: House) -> None:
    running = house.open("Edge asked to end in mid-stream", HALF, read=b'" rains"')
    house.service.kill("edge-1", signal.SIGTERM)
    running.chat.read_to_end()
    house.check(running)


def test_machine_lost(house: House) -> None:
    service = house.service
    silent = house.open("Machine lost before the first token", SILENT)
    streaming = house.open("Machine lost in mid-stream", HALF, read=b'" rains"')
    wait_until(lambda: service.holds(streaming.account)[0].completion_tokens == 2)
    for journal in (service.data / "journals").iterdir():
        journal.unlink()
    service.kill("edge-1")
    with closing(sqlite3.connect(service.data / "metering.db", timeout=20)) as database, database:
        # An hour and a minute later.
        database.execute("UPDATE holds SET deadline_at_us = 1 WHERE state = 'held'")
    for running in (silent, streaming):
        running.chat.read_to_end()
        house.check(running)
        [hold] = service.holds(running.account)
        assert hold.state == "swept"
        assert hold.loss_bound_nanos == hold.amount_nanos - hold.charged_nanos


def test_router_killed(house: House) -> None:
    chats = [
        house.open("Router killed before the first token", SILENT),
        house.open("Router killed in mid-stream", HALF, read=b'" rains"'),
        house.open("Router killed before a whole answer", HALF, WHOLE_CHAT),
    ]
    house.service.kill("router")
    for running in chats:
        running.chat.read_until(b'{"error":')
        house.check(running)
    # Until the edge has found it again, too.
    api_key = house.service.new_key(house.service.new_account())
    wait_until(lambda: post_chat(house.service, api_key, CHAT).status == 200)


def test_metering_away_at_the_beginning(house: House) -> None:
    service, account = house.service, house.service.new_account()
    chat = OpenChat(service, service.new_key(account), CHAT, hesitates=True)
    # The rate is admitted before the body is asked for; the credit is held after that.
    chat.read_until(b"100 Continue\r\n\r\n")
    service.signal("metering", signal.SIGSTOP)
    chat.received = b""
    chat.send_body()
    chat.read_until(b'{"error":')
    service.signal("metering", signal.SIGCONT)
    chat.leave()
    rule = RULES["Metering away at the beginning"]
    assert chat.received.startswith(f"HTTP/1.1 {rule.seen} ".encode())
    assert b"\r\nretry-after: 1\r\n" in chat.received
    check_books(service, account, CREDIT_NANOS, rule, None)


def test_metering_killed_when_credit_is_held(house: House) -> None:
    service, account = house.service, house.service.new_account()
    house.kill_at("metering.reserve.committed")
    with service.restart_of("metering"):
        answer = post_chat(service, service.new_key(account), CHAT)
    if answer.status == 503:
        # It took longer to come back than anybody waits.
        check_books(service, account, CREDIT_NANOS, RULES["Metering away at the beginning"], None)
        return
    assert answer.events[-1] == "[DONE]"
    rule = RULES["Metering killed when credit is held"]
    check_books(service, account, CREDIT_NANOS, rule, Charged(11, 7))


def test_metering_killed_in_mid_stream(house: House) -> None:
    running = house.open("Metering killed in mid-stream", SLOW, read=b'"It"')
    house.service.kill("metering")
    running.chat.read_until(b"[DONE]")
    house.check(running)


@pytest.mark.parametrize("place", ["written", "committed"])
def test_metering_killed_at_the_settlement(house: House, place: str) -> None:
    house.kill_at(f"metering.settle.{place}")
    with house.service.restart_of("metering"):
        running = house.open("Metering killed at the settlement", Reply(contents=RAIN, usage=USAGE), read=b"[DONE]")
    house.check(running)
