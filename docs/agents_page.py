"""Writes the page on agents from their table, with the versions that are tested: `make agents-page`."""

import json
import re
from pathlib import Path
from typing import Final

from services.rules.agents import AGENTS, Agent

DOCS: Final = Path(__file__).parent
PAGE: Final = DOCS / "agents.md"
REQUIREMENTS: Final = DOCS.parent / "requirements"
# On the page, all that follows is written.
WRITTEN: Final = "<!-- make agents-page writes what follows. -->"
HOST: Final = "https://HOST"
APIS: Final = {
    "chat": "[chat completions](api.md#a-chat)",
    "messages": "[Messages](messages.md)",
    "responses": "[Responses](responses.md)",
}


def page() -> str:
    """Returns the page with its present table."""
    by_hand, mark, _ = PAGE.read_text().partition(WRITTEN)
    return f"{by_hand}{mark}\n\n{_table()}\n\n" + "\n".join(map(_section, AGENTS))


def _table() -> str:
    rows = [
        "| | Version | Uses | A key that is not valid | No credit | At its rate limit | A full window |",
        "|---|---|---|---|---|---|---|",
    ]
    for agent in AGENTS:
        at_limit = f"Ends: `{agent.rate_limited}`" if agent.rate_limited else "Waits, and goes on"
        told = f"`{agent.key_refused}` | `{agent.no_credit}` | {at_limit} | {_at_full_window(agent)}"
        rows.append(f"| {agent.title} | {_version(agent)} | {APIS[agent.api]} | {told} |")
    return "\n".join(rows)


def _at_full_window(agent: Agent) -> str:
    if not agent.full_window:
        return "Makes room, and goes on"
    ends = f"Ends: `{agent.full_window}`"
    return f"{ends} With the next message it makes room, and goes on" if agent.next_message else ends


def _section(agent: Agent) -> str:
    settings = agent.settings.filled(f"{HOST}/v1", "sk-legato-KEY")
    blocks = []
    if settings.environment:
        blocks.append(_code(settings.exports))
    for path, text in settings.files.items():
        blocks.append(f"In `~/{path}`:\n\n{_code(text)}")
    if settings.command:
        blocks.append(_code(" ".join(settings.command)))
    if agent.note:
        blocks.append(agent.note)
    return f"## {agent.title}\n\n" + "\n\n".join(blocks) + "\n"


def _code(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def _version(agent: Agent) -> str:
    if agent.language == "python":
        found = re.search(
            rf"^{re.escape(agent.package)}==(\S+)", (REQUIREMENTS / "agents.lock").read_text(), re.MULTILINE
        )
        return "" if found is None else found[1]
    packages = json.loads((REQUIREMENTS / "agents" / "package.json").read_text())["dependencies"]
    version: str = packages[agent.package]
    return version


if __name__ == "__main__":
    PAGE.write_text(page())
