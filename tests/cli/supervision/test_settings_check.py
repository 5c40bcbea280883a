from pathlib import Path

import pytest

from cli.supervision.settings import UpSettings
from cli.supervision.settings_check import mistakes_in_settings, strange_names


def mistakes(**environ: str) -> list[str]:
    return list(mistakes_in_settings(UpSettings, environ))


def strange(environ: dict[str, str], routes: Path = Path("/nowhere")) -> list[str]:
    return list(strange_names(UpSettings, routes, environ))


def test_nothing_has_to_be_set() -> None:
    assert mistakes() == []
    assert mistakes(LEGATO_KEY_PEPPERS="", LEGATO_MEMORY="1", LEGATO_DATA="somewhere", PATH="/bin") == []


def test_wrong_settings_of_every_process_are_named_at_once_and_each_of_them_once() -> None:
    found = mistakes(
        LEGATO_DEBUG="maybe",
        LEGATO_KEY_PEPPERS="1:abcd",
        LEGATO_TRACE_RATIO="2",
        LEGATO_UPSTREAM_IDLE_S="0",
        LEGATO_SWEEP_INTERVAL_S="-3",
        LEGATO_TRUSTED_PROXIES="10.0.0.0/99",
        LEGATO_SEARCH_URL="searx.test",
        LEGATO_LOCAL_MODEL_THREADS="many",
        LEGATO_LONGEST_RESTART_DELAY_S="inf",
        LEGATO_VALKEY_URL="nonsense",
        LEGATO_OTLP_ENDPOINT="http://collector.test:99999",
        LEGATO_DATABASE_REGION="us-east-1",
        LEGATO_EDGE_OPERATIONS_LISTEN="127.0.0.1:99999",
    )
    assert sorted(line.partition(" ")[0].rstrip(":") for line in found) == [
        "LEGATO_DATABASE_REGION",
        "LEGATO_DEBUG",
        "LEGATO_EDGE_OPERATIONS_LISTEN",
        "LEGATO_KEY_PEPPERS",
        "LEGATO_LOCAL_MODEL_THREADS",
        "LEGATO_LONGEST_RESTART_DELAY_S",
        "LEGATO_OTLP_ENDPOINT",
        "LEGATO_SEARCH_URL",
        "LEGATO_SWEEP_INTERVAL_S",
        "LEGATO_TRACE_RATIO",
        "LEGATO_TRUSTED_PROXIES",
        "LEGATO_UPSTREAM_IDLE_S",
        "LEGATO_VALKEY_URL",
    ]


def test_name_that_is_none_is_told_wherever_it_stands(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("debug = true\ndrian_s = 3\n")
    environ = {"LEGATO_DRIAN_S": "5", "LEGATO_SETTINGS": str(settings), "LEGATO_DRAIN_S_FILE": ""}
    assert strange(environ) == [
        "LEGATO_DRIAN_S is not a setting: did you mean LEGATO_DRAIN_S?",
        "LEGATO_SETTINGS: drian_s is not a setting: did you mean drain_s?",
    ]
    assert mistakes(**environ) == []


def test_variable_of_the_operators_own_keeps_nothing_from_starting() -> None:
    [told] = strange({"LEGATO_API_KEY": "sk-legato-1"})
    assert told.startswith("LEGATO_API_KEY is not a setting")
    assert mistakes(LEGATO_API_KEY="sk-legato-1") == []


def test_variable_that_the_routes_name_is_theirs(tmp_path: Path) -> None:
    routes = tmp_path / "routes.toml"
    routes.write_text('[providers.a]\napi_key_env = "LEGATO_KEY_AT_A"\n')
    assert strange({"LEGATO_KEY_AT_A": "secret", "LEGATO_KEY_AT_A_FILE": ""}, routes) == []


@pytest.mark.parametrize("text", ["debug =", "\0"])
def test_settings_file_that_cannot_be_read_is_one_mistake(tmp_path: Path, text: str) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(text)
    [line] = mistakes(LEGATO_SETTINGS=str(settings))
    assert line.startswith(f"LEGATO_SETTINGS: cannot read {settings}: ")
