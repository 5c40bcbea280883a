"""Agents and libraries as their users have them, at a model that refuses calls without its reasoning: none of them
sends that back by itself, so it travels in the ids of the calls."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.rules.agents import AGENTS, Agent
from tests.agents.harness import AgentProcess
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.thinking import DONE
from tests.support.upstreams.thinking_shell import ThinkingShell

pytestmark = [pytest.mark.long, pytest.mark.apart]

# Libraries, which call as often as the model wants, and agents.
TURNS = {"langchain": 20, "ai-sdk-openai-chat": 20, "pydantic-ai": 20, "opencode": 3, "qwen-code": 3}
TRIED = [agent for agent in AGENTS if agent.name in TURNS]


@pytest.fixture(scope="module")
def model() -> Iterator[ThinkingShell]:
    model = ThinkingShell()
    with UpstreamThread(model):
        yield model


@pytest.fixture(scope="module")
def thinking_service(model: ThinkingShell) -> Iterator[Service]:
    # Any router of the fleet opens what another has sealed.
    with Service(model, routers=2) as service:
        yield service


@pytest.mark.parametrize("agent", TRIED, ids=[agent.name for agent in TRIED])
def test_reasoning_is_back_in_every_turn(
    agent: Agent, thinking_service: Service, model: ThinkingShell, tmp_path: Path
) -> None:
    model.loop.loops, model.loop.asked, model.loop.returned = TURNS[agent.name], 0, 0
    model.refused.clear()
    key = thinking_service.new_key(thinking_service.new_account())
    code, said = AgentProcess(agent, thinking_service.base_url, key, tmp_path).run()
    assert (code, DONE in said) == (0, True), said
    assert (model.refused, model.loop.asked, model.loop.returned) == ([], TURNS[agent.name], TURNS[agent.name])
    assert thinking_service.audit() == []
