"""Converts the client's messages to turns, for providers with another format than the client's.

Such providers have three roles: system, user and model. Tool results belong to the user's turn after the calls: all of
them, and no result without a call. Texts stay raw JSON.
"""

import hashlib
import re
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from services.chassis.errors import LegatoError, Reason
from services.router.schema.messages import (
    ABSENT,
    Message,
    Messages,
    PastFunction,
    PastToolCall,
    decode_string,
    join_strings,
)

# The ids that providers accept for a call.
_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# A longer text is assumed not to be blank, and is not decoded.
_LONGEST_BLANK_BYTES = 64


@dataclass(frozen=True, slots=True, repr=False)
class PastCall:
    call_id: str
    name: str
    # A JSON object.
    arguments: Raw
    # The provider's own data for the call, if the client sent it back.
    extra: Raw


@dataclass(frozen=True, slots=True, repr=False)
class ToolResult:
    call_id: str
    name: str
    # A JSON string, possibly empty.
    text: Raw


@dataclass(slots=True, repr=False)
class UserTurn:
    texts: list[Raw] = field(default_factory=list)


@dataclass(slots=True, repr=False)
class ModelTurn:
    texts: list[Raw] = field(default_factory=list)
    calls: list[PastCall] = field(default_factory=list)


@dataclass(frozen=True, slots=True, repr=False)
class ResultsTurn:
    """The results of all calls of the previous turn, in order."""

    results: list[ToolResult]


Turn = UserTurn | ModelTurn | ResultsTurn


@dataclass(frozen=True, slots=True, repr=False)
class Conversation:
    # System messages from any position: providers have one place for them.
    system: list[Raw]
    turns: list[Turn]

    @property
    def called_names(self) -> list[str]:
        """The names of all functions called so far, without duplicates."""
        calls = (call.name for turn in self.turns if isinstance(turn, ModelTurn) for call in turn.calls)
        return list(dict.fromkeys(calls))


_arguments = msgspec.json.Decoder(dict[str, Raw])


def read_conversation(messages: Messages) -> Conversation:
    reader = _Reader()
    for message in messages.parsed:
        reader.add(message)
    reader.expect_results()
    if not reader.turns:
        raise _refusal("The model needs at least one user message.")
    return Conversation(reader.system, reader.turns)


class _Reader:
    def __init__(self) -> None:
        self.system: list[Raw] = []
        self.turns: list[Turn] = []
        # Calls of the last turn, and their results so far.
        self._asked: dict[str, PastCall] = {}
        self._given: dict[str, Raw] = {}

    def add(self, message: Message) -> None:
        if message.role == "tool":
            self._add_result(message)
            return
        if message.role in ("system", "developer"):
            self.system += filter(_says_something, message.texts)
            return
        self.expect_results()
        said = message.texts if message.refusal is ABSENT else [*message.texts, message.refusal]
        texts = list(filter(_says_something, said))
        calls = list(map(_read_call, message.calls))
        if not texts and not calls:
            # Providers refuse empty turns.
            return
        kind = UserTurn if message.role == "user" else ModelTurn
        turn = self.turns[-1] if self.turns else None
        if not isinstance(turn, kind):
            turn = kind()
            self.turns.append(turn)
        turn.texts += texts
        if isinstance(turn, ModelTurn):
            turn.calls += calls
            self._asked = {call.call_id: call for call in calls}
            if len(self._asked) < len(calls):
                raise _refusal("Two tool calls of one message have the same id.")

    def expect_results(self) -> None:
        """Adds the turn of results, and refuses the request if a call has none."""
        if not self._asked:
            return
        if len(self._given) < len(self._asked):
            raise _refusal("Every tool call must be followed by a message with its result, before anything else.")
        asked, given = self._asked, self._given
        self.turns.append(ResultsTurn([ToolResult(name, call.name, given[name]) for name, call in asked.items()]))
        self._asked, self._given = {}, {}

    def _add_result(self, message: Message) -> None:
        call_id = plain_id(message.tool_call_id or "")
        if call_id not in self._asked or call_id in self._given:
            raise _refusal("The result of a tool call must follow the message with the call, and only once.")
        self._given[call_id] = join_strings(list(filter(_says_something, message.texts)))


def plain_id(call_id: str) -> str:
    """Returns the id, or a valid replacement, always the same for the same id."""
    if _PLAIN_ID.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode()).hexdigest()[:24]


def _read_call(call: PastToolCall) -> PastCall:
    function = call.function or PastFunction()
    arguments = "{}" if function.arguments is ABSENT else decode_string(function.arguments).strip() or "{}"
    try:
        _arguments.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        raise _refusal("The arguments of a tool call in the messages are not a JSON object.") from None
    return PastCall(plain_id(call.id or ""), function.name or "", Raw(arguments.encode()), call.extra_content)


def _says_something(text: Raw) -> bool:
    """Returns whether a text is not blank. Providers refuse blank texts, though models write them before a call."""
    return len(memoryview(text)) > _LONGEST_BLANK_BYTES or bool(decode_string(text).strip())


def _refusal(message: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param="messages")
