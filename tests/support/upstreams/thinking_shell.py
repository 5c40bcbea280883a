"""A model that refuses calls without its reasoning, as DeepSeek's do, and that calls the shell of whatever agent asks
it."""

import json
from typing import Any

from tests.support.upstreams.openai import Recorded, Reply
from tests.support.upstreams.shell_model import shell_arguments, shell_of
from tests.support.upstreams.thinking import DeepSeekUpstream


class ThinkingShell(DeepSeekUpstream):
    def __init__(self) -> None:
        super().__init__()
        self._shell: dict[str, Any] = {}

    def call_of(self, turn: int, place: int) -> dict[str, Any]:
        arguments = json.dumps(shell_arguments(self._shell, f"echo turn {turn}"))
        return super().call_of(turn, place) | {"function": {"name": self._shell["name"], "arguments": arguments}}

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        # Others, such as the request for a title of the conversation, are not counted.
        return super().refusal_of(recorded) if shell_of(recorded.json) is not None else None

    def reply_to(self, recorded: Recorded) -> Reply:
        shell = shell_of(recorded.json)
        if shell is None:
            return Reply(contents=["Notes ", "of a recital"])
        self._shell = shell
        return super().reply_to(recorded)
