"""A model that does one task with the shell of whatever agent asks it: a command a turn, and at last a sentence.

It finds the shell among the tools that a request offers, so that the same model serves every agent. Its window may be
full after some results; an agent that makes its conversation shorter gets the summary that it asks for, and goes on.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tests.support.upstreams.openai import Recorded, Reply, Upstream

TASK: Final = "Write two notes about the recital in the folder notes, and tell me when they are there."
COMMANDS: Final = (
    "mkdir -p notes && printf 'first note\\n' > notes/one.txt",
    # Long, so that a summary is worth it.
    "cat notes/one.txt && seq 1000 5000",
    "printf 'second note\\n' > notes/two.txt && ls notes",
)
DONE: Final = "Both notes about the recital are written."
SHELLS: Final = frozenset(
    {
        "bash", "exec_command", "execute_command", "run_commands", "run_shell", "run_shell_command",
        "run_terminal_command", "shell", "shell_command",
    }
)  # fmt: skip
TOO_LONG: Final = Reply(
    status=400,
    body='{"error":{"code":"context_length_exceeded","message":"This model\'s maximum context length is 200000 tokens.'
    ' However, your messages resulted in 210000 tokens."}}',
)
# How agents ask for a summary: some of them offer tools even then, and do not want them to be called.
_ASKS_FOR_SUMMARY: Final = re.compile("detailed summary of|summar|snapshot|compact", re.IGNORECASE)
_RUN: Final = "Commands that were run: %d."
_RUN_BEFORE: Final = re.compile(_RUN.replace("%d", "([0-9])"))
_CALL: Final = "call_%d"
_COMMAND_FIELDS: Final = ("cmd", "command", "commands")


class ShellModel(Upstream):
    def __init__(self) -> None:
        super().__init__()
        # True: an answer to the task stops after its first words.
        self.stalls = False
        self.tasks: list[Recorded] = []
        # The window has room for so many results, until the conversation was made shorter. None: for all.
        self.most_results: int | None = None
        self.refused: list[Recorded] = []

    def reply_to(self, recorded: Recorded) -> Reply:
        if self.replies:
            return self.replies.popleft()
        request = recorded.json
        shell = shell_of(request)
        turn = _commands_run(request)
        if _asks_for_summary(request, has_shell=shell is not None):
            summary = f"<state_snapshot><summary>{_RUN % turn} Go on with the notes.</summary></state_snapshot>"
            return Reply(contents=[summary], usage=None)
        if shell is None:
            # Such as the request for a title of the conversation.
            return Reply(contents=["Notes ", "of a recital"])
        self.tasks.append(recorded)
        if self.most_results is not None:
            if len(results_of(request)) > self.most_results:
                self.refused.append(recorded)
                return TOO_LONG
            if self.refused:
                self.most_results = None
        if self.stalls:
            return Reply(contents=["One ", "moment ", "please"], stall_after=3)
        if turn >= len(COMMANDS):
            return Reply(contents=[*(f"{word} " for word in DONE.split())], usage=None)
        arguments = msgspec.json.encode(shell_arguments(shell, COMMANDS[turn])).decode()
        call = {"id": _CALL % turn, "type": "function"}
        name = {"name": shell["name"], "arguments": ""}
        half = len(arguments) // 2
        pieces = [
            {"index": 0, **call, "function": name},
            *({"index": 0, "function": {"arguments": each}} for each in (arguments[:half], arguments[half:])),
        ]
        whole = {**call, "function": {**name, "arguments": arguments}}
        return Reply(
            contents=["Next", "."],
            tool_calls=pieces,
            message_tool_calls=[whole],
            finish_reason="tool_calls",
            usage=None,
        )


def results_of(request: dict[str, Any]) -> list[str]:
    """Returns what the tools have said so far."""
    return [msgspec.json.encode(each["content"]).decode() for each in request["messages"] if each["role"] == "tool"]


def _commands_run(request: dict[str, Any]) -> int:
    """Returns how many commands were run: by their results, or by a summary of them."""
    calls = {each["tool_call_id"] for each in request["messages"] if each["role"] == "tool"}
    told = [turn + 1 for turn in range(len(COMMANDS)) if _CALL % turn in calls]
    summarized = map(int, _RUN_BEFORE.findall(msgspec.json.encode(request["messages"]).decode()))
    return max((*told, *summarized), default=0)


def _asks_for_summary(request: dict[str, Any], *, has_shell: bool) -> bool:
    last = request["messages"][-1]
    if last["role"] == "tool":
        return False
    found = _ASKS_FOR_SUMMARY.search(msgspec.json.encode(last["content"]).decode())
    return found is not None and (not has_shell or found[0] == "detailed summary of")


def shell_of(request: dict[str, Any]) -> dict[str, Any] | None:
    offered = [tool["function"] for tool in request.get("tools", ())]
    return next((each for each in offered if each["name"].lower() in SHELLS), None)


def shell_arguments(shell: dict[str, Any], command: str) -> dict[str, Any]:
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
