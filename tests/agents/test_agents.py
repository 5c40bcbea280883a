"""Agents and libraries as their users have them, on a task of three turns; and what is seen when something is wrong.

`make agents` runs it. What is expected of each is in the table from which `docs/agents.md` is written.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.rules.agents import AGENTS, Agent
from tests.agents.harness import TIMEOUT_S, AgentProcess
from tests.e2e.operations import LISTENING, value_of
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.shell_model import DONE, ShellModel, results_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.apart]

# The next is given after five seconds.
SLOW = {"requests_per_minute": 12}


@pytest.fixture(scope="module")
def shared_model() -> Iterator[ShellModel]:
    model = ShellModel()
    with UpstreamThread(model):
        yield model


@pytest.fixture(scope="module")
def service(shared_model: ShellModel) -> Iterator[Service]:
    with Service(shared_model, LISTENING) as service:
        yield service


@pytest.fixture
def model(shared_model: ShellModel) -> ShellModel:
    shared_model.stalls, shared_model.most_results = False, None
    shared_model.refused.clear()
    shared_model.tasks.clear()
    return shared_model


@pytest.fixture(params=AGENTS, ids=[agent.name for agent in AGENTS])
def agent(request: pytest.FixtureRequest) -> Agent:
    agent: Agent = request.param
    return agent


def test_task_of_three_turns_is_done(agent: Agent, service: Service, model: ShellModel, tmp_path: Path) -> None:
    account = service.new_account()
    process = AgentProcess(agent, service.base_url, service.new_key(account), tmp_path)
    code, said = process.run()
    assert (code, DONE in said) == (0, True), said
    notes = process.work / "notes"
    assert [(notes / name).read_text() for name in ("one.txt", "two.txt")] == ["first note\n", "second note\n"]
    results = results_of(model.tasks[-1].json)
    assert ["first note" in results[1], "two.txt" in results[2], len(results)] == [True, True, 3], "\n".join(results)
    assert all(task.json["stream"] for task in model.tasks)
    service.settled_balance_nanos(account)
    assert {hold.api for hold in service.holds(account)} == {agent.api}
    assert {hold.end for hold in service.holds(account)} == {"complete"}
    assert service.audit() == []


def test_user_is_told_of_a_key_that_is_not_valid(
    agent: Agent, service: Service, model: ShellModel, tmp_path: Path
) -> None:
    """An expired one is refused with the same words."""
    made = service.make_key(service.new_account())
    service.legato("keys", "revoke", made.key.key_id)
    code, said = AgentProcess(agent, service.base_url, made.api_key, tmp_path).run()
    assert agent.key_refused in said, (code, said)
    assert model.tasks == []


def test_user_is_told_that_the_credit_is_used_up(
    agent: Agent, service: Service, model: ShellModel, tmp_path: Path
) -> None:
    account = service.new_account(credits="0")
    code, said = AgentProcess(agent, service.base_url, service.new_key(account), tmp_path).run()
    assert agent.no_credit in said, (code, said)
    assert model.tasks == []


def test_rate_limit_is_waited_for_or_told(agent: Agent, service: Service, model: ShellModel, tmp_path: Path) -> None:
    def refusals() -> float:
        return value_of(service, "edge", "legato_refusals_total", reason="RATE_LIMITED", api=agent.api)

    before = refusals()
    key = service.make_key(service.new_account(), limits=SLOW)
    code, said = AgentProcess(agent, service.base_url, key.api_key, tmp_path).run()
    assert (agent.rate_limited or DONE) in said, (code, said)
    assert refusals() > before


def test_room_is_made_in_a_full_window_or_the_user_is_told(
    agent: Agent, service: Service, model: ShellModel, tmp_path: Path
) -> None:
    model.most_results = 1
    process = AgentProcess(agent, service.base_url, service.new_key(service.new_account()), tmp_path)
    code, said = process.run()
    assert model.refused, said
    assert agent.full_window in said, (code, said)
    if agent.next_message:
        code, said = process.run(agent.next_message)
    if agent.next_message or not agent.full_window:
        assert DONE in said, (code, said)
        notes = process.work / "notes"
        assert [(notes / name).read_text() for name in ("one.txt", "two.txt")] == ["first note\n", "second note\n"]
        # It was not asked again and again for what it has no room for.
        assert len(model.refused) <= 2
    assert service.audit() == []


def test_turn_that_is_cancelled_ends_the_call_of_the_model(
    agent: Agent, service: Service, model: ShellModel, tmp_path: Path
) -> None:
    model.stalls = True
    account = service.new_account()
    started = AgentProcess(agent, service.base_url, service.new_key(account), tmp_path)
    process = started.start()
    try:
        wait_until(lambda: model.tasks and model.tasks[0].writes >= 3, timeout_s=TIMEOUT_S)
        os.killpg(process.pid, signal.SIGINT)
        wait_until(lambda: model.tasks[0].aborted)
    finally:
        started.end(process)
    service.settled_balance_nanos(account)
    assert "client_gone" in {hold.end for hold in service.holds(account)}
    assert service.audit() == []
