"""A new model that is tried for some accounts, and given up when it fails clearly more than the others."""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from services.chassis.errors import LegatoError
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.router.routes.class_route import CanaryRoute, ClassRoute, in_order
from services.router.trials.canary import FAILURES_IN_A_ROW, LEAST_CALLS, Canary
from tests.services.router.harness import Router, as_json, running_router, target
from tests.support.upstreams.openai import Reply, Upstream

ACCOUNTS = [f"acct_{number:04}" for number in range(10_000)]
OLD, SPARE, NEW = target("old"), target("spare"), target("new")
ROLLED_BACK = '"canary.rolled_back"'
BROKEN = Reply(status=500)
EMPTY = Reply(contents=[])
REFUSES = Reply(status=400, body='{"error": {"message": "no"}}')
TOOLS = as_json([{"type": "function", "function": {"name": "look_up"}}])


def canary(percent: float = 50, *, name: str = "new", class_id: str = "forte") -> Canary:
    return Canary(class_id, CanaryRoute(target(name), percent), lambda canary: None)


def included(canary: Canary) -> set[str]:
    return {account for account in ACCOUNTS if canary.includes(account)}


def in_canary(percent: float = 100, *accounts: str) -> ClassRoute:
    return ClassRoute(in_order(OLD, SPARE).tiers, CanaryRoute(NEW, percent, frozenset(accounts)))


@pytest.mark.parametrize("percent", [0.5, 1, 5, 50])
def test_share_of_the_accounts_is_as_the_percentage_says(percent: float) -> None:
    expected = len(ACCOUNTS) * percent / 100
    # Four standard deviations.
    assert abs(len(included(canary(percent))) - expected) < 4 * expected**0.5


def test_account_stays_in_when_the_percentage_grows() -> None:
    few, more, most, everybody = (included(canary(percent)) for percent in (1, 5, 50, 100))
    assert few < more < most < everybody == set(ACCOUNTS)


def test_another_class_or_model_has_other_accounts() -> None:
    here = included(canary(5))
    assert here == included(canary(5))
    for other in (included(canary(5, name="other")), included(canary(5, class_id="mezzo"))):
        assert len(here & other) < len(here) / 5


def test_model_that_fails_as_often_as_the_others_stays() -> None:
    dice = random.Random(1)
    for share in (0.0, 0.01, 0.1, 0.5):
        judged = canary()
        for _ in range(20_000):
            judged.record(is_canary=dice.random() < 0.05, failed=dice.random() < share)
        assert not judged.is_rolled_back, share


@pytest.mark.parametrize(("share", "most_calls"), [(1.0, 5), (0.5, 50), (0.2, 200), (0.1, 400)])
def test_model_that_fails_more_is_given_up_the_sooner_the_more_it_fails(share: float, most_calls: int) -> None:
    dice = random.Random(2)
    for _ in range(20):
        judged, calls = canary(), 0
        while not judged.is_rolled_back:
            is_canary = dice.random() < 0.2
            calls += is_canary
            judged.record(is_canary=is_canary, failed=dice.random() < (share if is_canary else 0.01))
        assert calls <= most_calls


def test_long_good_time_does_not_hide_a_bad_one() -> None:
    judged = canary()
    for number in range(100_000):
        judged.record(is_canary=True, failed=number % 100 == 0)
        judged.record(is_canary=False, failed=number % 100 == 0)
    assert not judged.is_rolled_back
    for number in range(200):
        judged.record(is_canary=True, failed=number % 4 == 0)
        judged.record(is_canary=False, failed=number % 100 == 0)
    assert judged.is_rolled_back


def test_few_calls_are_not_judged_unless_all_fail() -> None:
    judged = canary()
    for number in range(LEAST_CALLS - 1):
        judged.record(is_canary=False, failed=False)
        judged.record(is_canary=True, failed=bool(number % FAILURES_IN_A_ROW))
    assert not judged.is_rolled_back
    judged.record(is_canary=True, failed=True)
    assert judged.is_rolled_back


def test_failures_in_a_row_wait_for_an_answer_of_another_model() -> None:
    judged = canary()
    for _ in range(2 * FAILURES_IN_A_ROW):
        judged.record(is_canary=True, failed=True)
        judged.record(is_canary=False, failed=True)
    assert not judged.is_rolled_back
    for _ in range(100):
        judged.record(is_canary=False, failed=False)
    assert judged.is_rolled_back


async def served_by(router: Router, account_id: str, *upstreams: Upstream) -> list[int]:
    """Returns how many requests each got for one chat, which is answered."""
    before = [len(upstream.requests) for upstream in upstreams]
    assert (await router.ask(account_id=account_id)).text == "Hello, world!"
    return [len(upstream.requests) - count for upstream, count in zip(upstreams, before, strict=True)]


async def test_chats_of_an_account_go_to_one_model_and_fall_back_from_the_canary(socket_folder: Path, log: Log) -> None:
    async with Upstream() as old, Upstream() as spare, Upstream() as new:
        route = in_canary(0.001, "acct_tester")
        async with running_router(socket_folder, log, {OLD: old, SPARE: spare, NEW: new}, route=route) as router:
            for _ in range(3):
                assert await served_by(router, "acct_tester", new, old) == [1, 0]
                assert await served_by(router, "acct_other", new, old) == [0, 1]
            new.replies.append(BROKEN)
            assert await served_by(router, "acct_tester", new, old) == [1, 1]
            # The canary is no fallback of those who are not in it.
            old.replies.append(BROKEN)
            assert await served_by(router, "acct_other", new, old, spare) == [0, 1, 1]


@pytest.mark.parametrize("reply", [BROKEN, REFUSES, EMPTY], ids=["fails", "refuses", "says nothing"])
async def test_canary_that_fails_is_left_at_once_and_no_chat_is_lost(
    reply: Reply, socket_folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    registry, labels = Registry(), {"gen_ai_provider_name": "new", "gen_ai_request_model": "new-model"}
    async with (
        Upstream() as old,
        Upstream(reply) as new,
        running_router(
            socket_folder, log, {OLD: old, SPARE: old, NEW: new}, registry=registry, route=in_canary()
        ) as router,
    ):
        for number in range(FAILURES_IN_A_ROW):
            assert ROLLED_BACK not in log_text()
            assert registry.get_sample_value("legato_canary_state", {**labels, "class": "forte"}) == 0
            assert await served_by(router, f"acct_{number}", new, old) == [1, 1]
        assert log_text().count(ROLLED_BACK) == 1
        assert registry.get_sample_value("legato_canary_state", {**labels, "class": "forte"}) == 1
        error = {id(REFUSES): "refused", id(EMPTY): "empty"}.get(id(reply), "provider")
        counted = {**labels, "class": "forte", "role": "canary", "outcome": error}
        assert registry.get_sample_value("legato_class_calls_total", counted) == FAILURES_IN_A_ROW
        new.default_reply = Reply()
        assert await served_by(router, "acct_0", new, old) == [0, 1]


async def test_slow_model_is_not_left_for_a_canary_that_the_account_is_not_in(socket_folder: Path, log: Log) -> None:
    route = ClassRoute(in_order(OLD).tiers, CanaryRoute(NEW, 0.001, frozenset({"acct_tester"})), first_token_s=0.2)
    slow = Reply(first_event_delay_s=0.6)
    async with (
        Upstream(slow) as old,
        Upstream(slow) as new,
        running_router(socket_folder, log, {OLD: old, NEW: new}, route=route) as router,
    ):
        assert await served_by(router, "acct_other", new, old) == [0, 1]
        # The canary is left, and no model behind it is untried.
        assert await served_by(router, "acct_tester", new, old) == [1, 1]


def calling(arguments: str) -> Reply:
    function = {"name": "look_up", "arguments": arguments}
    call = {"index": 0, "id": "a", "type": "function", "function": function}
    return Reply(contents=[], tool_calls=[call], finish_reason="tool_calls")


@pytest.mark.parametrize(
    ("reply", "fails"),
    [(Reply(cut_after=2), True), (calling("{"), True), (calling("{}"), False)],
    ids=["breaks off", "calls without arguments", "calls"],
)
async def test_answers_that_break_off_and_invalid_tool_calls_are_failures(
    reply: Reply, fails: bool, socket_folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    async with (
        Upstream() as old,
        Upstream(reply) as new,
        running_router(
            socket_folder, log, {OLD: old, SPARE: old, NEW: new}, route=in_canary(0.001, "acct_tester")
        ) as router,
    ):
        for _ in range(FAILURES_IN_A_ROW):
            with contextlib.suppress(LegatoError):
                await router.ask(account_id="acct_tester", tools_json=TOOLS)
            await router.ask(account_id="acct_other")
        assert log_text().count(ROLLED_BACK) == fails
        assert len(new.requests) == FAILURES_IN_A_ROW
        new.default_reply = Reply()
        assert await served_by(router, "acct_tester", new) == [not fails]


async def test_outage_of_all_models_and_chats_that_all_refuse_are_not_held_against_the_canary(
    socket_folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    async with (
        Upstream() as old,
        Upstream() as new,
        running_router(socket_folder, log, {OLD: old, SPARE: old, NEW: new}, route=in_canary()) as router,
    ):
        for reply in (REFUSES, BROKEN):
            old.default_reply = new.default_reply = reply
            for _ in range(3 * FAILURES_IN_A_ROW):
                with pytest.raises(LegatoError):
                    await router.ask(account_id="acct_1")
            old.default_reply = new.default_reply = Reply()
            # Its circuit breaker may be open for a while.
            while await served_by(router, "acct_1", new) == [0]:
                pass
        assert ROLLED_BACK not in log_text()
