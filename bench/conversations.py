"""Prompts as agents send them: tools, and a conversation of calls and their results, which each turn sends again."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

SOURCES: Final = Path(__file__).parents[1] / "services"
TOOLS: Final = 12
SYSTEM_BYTES: Final = 8_000
QUESTION_BYTES: Final = 1_000
# Of a call and its result.
STEP_BYTES_MOST: Final = 15_000
# By which the mock upstream counts what it is sent; about what tokenizers make of source code.
BYTES_A_TOKEN: Final = 4
# The load generator replaces them (`bench/wire/turns.h`).
SESSION_MARK: Final = "%SESSION"
REQUEST_MARK: Final = "%REQUEST"


class Conversation(msgspec.Struct, frozen=True):
    """The requests of a session. Each message of it differs from those of other sessions."""

    # The size of the messages in each turn, which begin with those of the turn before.
    turns_bytes: tuple[int, ...]
    # All sessions are the same but for a last message, which differs in each request: the gateway has seen the others.
    is_known: bool = False

    def turns(self, wish: str) -> Iterator[list[dict[str, object]]]:
        """Yields the messages of each turn. `wish` tells the mock upstream its answer."""
        mark = "" if self.is_known else SESSION_MARK
        text = _text()
        messages: list[dict[str, object]] = [
            {
                "role": "system",
                "content": f"{mark} {wish} bytes_a_token={BYTES_A_TOKEN} You are a coding agent. {text[:SYSTEM_BYTES]}",
            },
            {"role": "user", "content": f"{mark} Find the mistake. {text[SYSTEM_BYTES:][:QUESTION_BYTES]}"},
        ]
        last: list[dict[str, object]] = [{"role": "user", "content": f"Go on. {REQUEST_MARK}"}] if self.is_known else []
        place = length = SYSTEM_BYTES + QUESTION_BYTES
        for turn_bytes in self.turns_bytes:
            while (step_bytes := min(STEP_BYTES_MOST, turn_bytes - length)) > 0:
                messages += _step(len(messages) // 2, mark, text[place : place + step_bytes])
                place += step_bytes
                length += step_bytes
            yield [*messages, *last]


def tools() -> list[dict[str, object]]:
    return [
        {
            "type": "function",
            "function": {
                "name": f"tool_{number}",
                "description": _text()[number * 400 :][:400],
                "parameters": {
                    "type": "object",
                    "properties": {
                        f"argument_{place}": {"type": "string", "description": _text()[place * 60 :][:60]}
                        for place in range(5)
                    },
                    "required": ["argument_0"],
                },
            },
        }
        for number in range(TOOLS)
    ]


def _step(number: int, mark: str, text: str) -> list[dict[str, object]]:
    """Returns a call of a tool and its result."""
    arguments_bytes = len(text) // 10
    call: dict[str, object] = {
        "id": f"call_{number:08}",
        "type": "function",
        "function": {
            "name": f"tool_{number % TOOLS}",
            "arguments": json.dumps({"argument_0": text[:arguments_bytes]}),
        },
    }
    return [
        {"role": "assistant", "content": f"{mark} Step {number}.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": f"{mark} {text[arguments_bytes:]}"},
    ]


@cache
def _text() -> str:
    return "\n".join(path.read_text() for path in sorted(SOURCES.rglob("*.py")))
