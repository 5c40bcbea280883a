"""Ends of chats when a process of ours is killed or its machine is lost, as the billing page lists them."""

import signal
import sqlite3
from contextlib import closing

import pytest

from tests.e2e.chats import CHAT, RAIN, USAGE, WHOLE_CHAT
from tests.e2e.harness import CREDIT_NANOS, RULES, ServiceHarness
from tests.e2e.raw_http import OpenChat, post_chat
from tests.e2e.rules import INPUT_NANOS, OUTPUT_NANOS, Charged, check_books
from tests.support.upstreams.openai import Reply
from tests.support.waiting import wait_until

SILENT = Reply(stall_after=1)
HALF = Reply(contents=RAIN, stall_after=3)
SLOW = Reply(contents=RAIN, usage=USAGE, event_delay_s=0.3)


def test_edge_killed(harness: ServiceHarness) -> None:
    service = harness.service
    chats = {
        "Edge killed before the first token": harness.open(SILENT),
        "Edge killed in mid-stream": harness.open(HALF, read=b'" rains"'),
        "Edge killed before a whole answer": harness.open(HALF, WHOLE_CHAT),
        "Edge killed after the client had gone": (gone := harness.open(HALF, read=b'" rains"')),
        "Edge killed after the end": (ended := harness.open(SLOW, read=b'"It"')),
    }
    # So that nothing is settled before the edge dies, though two of the chats end.
    service.signal("metering", signal.SIGSTOP)
    gone.chat.leave()
    wait_until(lambda: gone.request.aborted)
    ended.chat.read_until(b"[DONE]")
    with service.restart_of("edge-1"):
        service.signal("edge-1", signal.SIGKILL)
        service.signal("metering", signal.SIGCONT)
    for what, running in chats.items():
        if running is not gone:
            running.chat.read_to_end()
        harness.check(what, running)


def test_edge_killed_between_the_first_piece_and_its_mark(harness: ServiceHarness) -> None:
    harness.kill_at("edge.relayed_first")
    with harness.service.restart_of("edge-1"):
        running = harness.open(Reply(contents=["It"], stall_after=2), read=b'"It"')
        running.chat.read_to_end()
    harness.check("Edge killed at the first piece", running)
    [loss] = harness.service.entries(running.account)
    assert (loss.end, loss.basis) == ("crashed", "journal")
    assert loss.loss_nanos == -(harness.prompt_tokens * INPUT_NANOS + OUTPUT_NANOS)


def test_edge_asked_to_end(harness: ServiceHarness) -> None:
    running = harness.open(HALF, read=b'" rains"')
    harness.service.kill("edge-1", signal.SIGTERM)
    running.chat.read_to_end()
    harness.check("Edge asked to end in mid-stream", running)


def test_machine_lost(harness: ServiceHarness) -> None:
    service = harness.service
    silent = harness.open(SILENT)
    streaming = harness.open(HALF, read=b'" rains"')
    wait_until(lambda: service.holds(streaming.account)[0].completion_tokens == 2)
    for journal in (service.data / "journals").iterdir():
        journal.unlink()
    service.kill("edge-1")
    with closing(sqlite3.connect(service.data / "metering.db", timeout=20)) as database, database:
        # An hour and a minute later.
        database.execute("UPDATE holds SET deadline_at_us = 1 WHERE state = 'held'")
    for what, running in (("Machine lost before the first token", silent), ("Machine lost in mid-stream", streaming)):
        running.chat.read_to_end()
        harness.check(what, running)
        [hold] = service.holds(running.account)
        assert hold.state == "swept"
        assert hold.loss_bound_nanos == hold.amount_nanos - hold.charged_nanos


def test_router_killed(harness: ServiceHarness) -> None:
    chats = {
        "Router killed before the first token": harness.open(SILENT),
        "Router killed in mid-stream": harness.open(HALF, read=b'" rains"'),
        "Router killed before a whole answer": harness.open(HALF, WHOLE_CHAT),
    }
    harness.service.kill("router")
    for what, running in chats.items():
        running.chat.read_until(b'{"error":')
        harness.check(what, running)
    # Until the edge has found it again, too.
    api_key = harness.service.new_key(harness.service.new_account())
    wait_until(lambda: post_chat(harness.service, api_key, CHAT).status == 200)


def test_metering_away_at_the_beginning(harness: ServiceHarness) -> None:
    service, account = harness.service, harness.service.new_account()
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
    assert b"\r\nretry-after: 5\r\n" in chat.received
    check_books(service, account, CREDIT_NANOS, rule, None)


def test_metering_killed_when_credit_is_held(harness: ServiceHarness) -> None:
    service, account = harness.service, harness.service.new_account()
    harness.kill_at("metering.reserve.committed")
    with service.restart_of("metering"):
        answer = post_chat(service, service.new_key(account), CHAT)
    if answer.status == 503:
        # It took longer to come back than anybody waits.
        check_books(service, account, CREDIT_NANOS, RULES["Metering away at the beginning"], None)
        return
    assert answer.events[-1] == "[DONE]"
    rule = RULES["Metering killed when credit is held"]
    check_books(service, account, CREDIT_NANOS, rule, Charged(11, 7))


def test_metering_killed_in_mid_stream(harness: ServiceHarness) -> None:
    running = harness.open(SLOW, read=b'"It"')
    harness.service.kill("metering")
    running.chat.read_until(b"[DONE]")
    harness.check("Metering killed in mid-stream", running)


@pytest.mark.parametrize("place", ["written", "committed"])
def test_metering_killed_at_the_settlement(harness: ServiceHarness, place: str) -> None:
    harness.kill_at(f"metering.settle.{place}")
    with harness.service.restart_of("metering"):
        running = harness.open(Reply(contents=RAIN, usage=USAGE), read=b"[DONE]")
    harness.check("Metering killed at the settlement", running)
