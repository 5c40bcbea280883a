"""A model that does one task with the shell of whatever agent asks it: a command a turn, and at last a sentence.

It finds the shell among the tools that a request offers, so that the same model serves every agent.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tests.support.upstreams.openai import Recorded, Reply, Upstream

TASK: Final = "Write two notes about the recital in the folder notes, and tell me when they are there."
COMMANDS: Final = (
    "mkdir -p notes && printf 'first note\\n' > notes/one.txt",
    "cat notes/one.txt",
    "printf 'second note\\n' > notes/two.txt && ls notes",
)
DONE: Final = "Both notes about the recital are written."
SHELLS: Final = frozenset(
    {
        "bash", "exec_command", "execute_command", "run_commands", "run_shell", "run_shell_command",
        "run_terminal_command", "shell", "shell_command",
    }
)  # fmt: skip
_COMMAND_FIELDS: Final = ("cmd", "command", "commands")


class ShellModel(Upstream):
    def __init__(self) -> None:
        super().__init__()
        # True: an answer to the task stops after its first words.
        self.stalls = False
        self.tasks: list[Recorded] = []

    def reply_to(self, recorded: Recorded) -> Reply:
        if self.replies:
            return self.replies.popleft()
        request = recorded.json
        shell = _shell_of(request)
        if shell is None:
            # Such as the request for a title of the conversation.
            return Reply(contents=["Notes ", "of a recital"])
        self.tasks.append(recorded)
        if self.stalls:
            return Reply(contents=["One ", "moment ", "please"], stall_after=3)
        turn = len(results_of(request))
        if turn >= len(COMMANDS):
            return Reply(contents=[*(f"{word} " for word in DONE.split())])
        arguments = msgspec.json.encode(_arguments(shell, COMMANDS[turn])).decode()
        call = {"id": f"call_{turn}", "type": "function"}
        name = {"name": shell["name"], "arguments": ""}
        half = len(arguments) // 2
        pieces = [
            {"index": 0, **call, "function": name},
            *({"index": 0, "function": {"arguments": each}} for each in (arguments[:half], arguments[half:])),
        ]
        whole = {**call, "function": {**name, "arguments": arguments}}
        return Reply(contents=["Next", "."], tool_calls=pieces, message_tool_calls=[whole], finish_reason="tool_calls")


def results_of(request: dict[str, Any]) -> list[str]:
    """Returns what the tools have said so far."""
    return [msgspec.json.encode(each["content"]).decode() for each in request["messages"] if each["role"] == "tool"]


def _shell_of(request: dict[str, Any]) -> dict[str, Any] | None:
    offered = [tool["function"] for tool in request.get("tools", ())]
    return next((each for each in offered if each["name"].lower() in SHELLS), None)


def _arguments(shell: dict[str, Any], command: str) -> dict[str, Any]:
    """Returns what the shell needs to be told, by its schema."""
    fields: dict[str, Any] = shell["parameters"]["properties"]
    needed: Sequence[str] = shell["parameters"].get("required", ())
    [place] = [name for name in _COMMAND_FIELDS if name in fields]
    given = {name: _something(fields[name]) for name in needed}
    return given | {place: _as_the_schema_has_it(fields[place], command)}


def _as_the_schema_has_it(schema: dict[str, Any], command: str) -> Any:
    if schema.get("type") == "array":
        return [command]
    return command


def _something(schema: dict[str, Any]) -> Any:
    kinds = {"boolean": False, "integer": 10_000, "number": 10_000, "array": [], "object": {}}
    return kinds.get(schema.get("type", ""), "Works on the notes")
