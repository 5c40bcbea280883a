"""Has Prometheus itself judge the alerts by made-up figures."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.support.servers.debian import find_program
from tests.support.waiting import WAIT_TIMEOUT_S

RULES = Path(__file__).parents[2] / "deploy" / "observability" / "alerts.yml"


def rules() -> list[dict[str, Any]]:
    return [rule for group in YAML(typ="safe").load(RULES)["groups"] for rule in group["rules"]]


def rule_of(alert: str) -> dict[str, Any]:
    [rule] = [rule for rule in rules() if rule["alert"] == alert]
    return rule


def world(figures: Mapping[str, str], **expected: object) -> dict[str, Any]:
    """Returns one test: the values of series, one a minute, and what is expected of them."""
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in figures.items()],
        **expected,
    }


def judge(folder: Path, worlds: Sequence[Mapping[str, Any]], alert: str = "") -> bool:
    """Tells if this alert, or what is asked in it, is as expected in each of these worlds."""
    # Alone: all of them take twenty times as long. JSON is YAML, too.
    rule, file = folder / "rule.yml", folder / "test.yml"
    tried = [{"name": "tried", "rules": [rule_of(alert)]}] if alert else []
    rule.write_text(json.dumps({"groups": tried}))
    file.write_text(json.dumps({"rule_files": [str(rule)], "evaluation_interval": "1m", "tests": worlds}))
    judged = promtool("test", "rules", str(file))
    print(judged.stdout, judged.stderr)
    return judged.returncode == 0


def promtool(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs Prometheus' own tool."""
    command = [find_program("promtool", "prometheus").path, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False)
