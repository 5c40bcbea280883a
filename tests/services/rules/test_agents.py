"""The settings of agents, for one service and key."""

import json
import shlex
import tomllib

from services.rules.agents import AGENTS, API_KEY, BASE_URL, CLAUDE_CODE, CODEX, ORIGIN, TASK, Settings

URL = "http://127.0.0.1:8080/v1"
KEY = "sk-legato-x"


def test_settings_are_filled_with_the_address_and_the_key() -> None:
    for agent in AGENTS:
        filled = agent.settings.filled(URL, KEY)
        text = "\n".join([filled.exports, *filled.files.values(), *filled.command])
        assert "http://127.0.0.1:8080" in text, agent.name
        assert KEY in text, agent.name
        assert not any(mark in text for mark in (BASE_URL, ORIGIN, API_KEY)), agent.name


def test_lines_for_a_shell_are_read_as_they_are_meant() -> None:
    settings = Settings({"A": "it's", "B": ORIGIN}).filled(URL, KEY)
    assert [shlex.split(line) for line in settings.exports.splitlines()] == [
        ["export", "A=it's"],
        ["export", "B=http://127.0.0.1:8080"],
    ]


def test_address_of_claude_code_has_no_path_and_that_of_codex_has() -> None:
    assert CLAUDE_CODE.settings.filled(URL, KEY).environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8080"
    config = tomllib.loads(CODEX.settings.filled(URL, KEY).files[".codex/config.toml"])
    assert config["model_providers"][config["model_provider"]]["base_url"] == URL


def test_files_in_json_are_json_and_each_command_has_the_task() -> None:
    for agent in AGENTS:
        for path, text in agent.settings.filled(URL, KEY).files.items():
            assert not path.startswith("/")
            if path.endswith(".json"):
                assert json.loads(text)
        assert agent.command.count(TASK) == 1, agent.name
    assert len({agent.name for agent in AGENTS}) == len(AGENTS)
