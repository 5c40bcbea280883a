"""Converts the client's messages to turns, for providers with another format than the client's.

Such providers have three roles: system, user and model. Tool results belong to the user's turn after the calls: all of
them, and no result without a call. Texts stay raw JSON.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.router.schema.messages import (
    ABSENT,
    Message,
    Messages,
    PastFunction,
    PastToolCall,
    decode_string,
    encode_string,
    join_strings,
)
from services.router.schema.thoughts import CallSignature, Carried, RedactedBlock, ThinkingBlock

# The ids that providers accept for a call.
_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# A longer text is assumed not to be blank, and is not decoded.
_LONGEST_BLANK_BYTES = 64


@dataclass(slots=True, repr=False)
class Text:
    # A JSON string.
    json: Raw
    # A mark that the prompt may be cached up to here.
    cache_control: Raw | None = None


@dataclass(frozen=True, slots=True, repr=False)
class PastCall:
    call_id: str
    name: str
    # A JSON object.
    arguments: Raw
    # The provider's own data for the call, if the client sent it back.
    extra: Raw
    # Gemini's, as far as it was carried.
    signature: str = ""


@dataclass(slots=True, repr=False)
class ToolResult:
    call_id: str
    name: str
    # A JSON string, possibly empty.
    text: Raw
    # A mark that the prompt may be cached up to here.
    cache_control: Raw | None = None


class PlacedThought(NamedTuple):
    texts_before: int
    calls_before: int
    block: ThinkingBlock | RedactedBlock


@dataclass(slots=True, repr=False)
class UserTurn:
    texts: list[Text] = field(default_factory=list)


@dataclass(slots=True, repr=False)
class ModelTurn:
    texts: list[Text] = field(default_factory=list)
    calls: list[PastCall] = field(default_factory=list)
    # Claude's, by how many of the texts, and of the calls, come before them.
    thoughts: list[PlacedThought] = field(default_factory=list)


@dataclass(frozen=True, slots=True, repr=False)
class ResultsTurn:
    """The results of all calls of the previous turn, in order."""

    results: list[ToolResult]


@dataclass(frozen=True, slots=True, repr=False)
class SystemTurn:
    """System messages from within the conversation, after what the user wrote in the same turn."""

    texts: list[Text]


Turn = UserTurn | ModelTurn | ResultsTurn | SystemTurn
_Turn = TypeVar("_Turn", UserTurn, ModelTurn)


@dataclass(frozen=True, slots=True, repr=False)
class Conversation:
    # The leading system messages, and those from any other position that have no turn of their own.
    system: list[Text]
    turns: list[Turn]
    # The end of what the next turn of the conversation will begin with; None: it is not known.
    prefix_end: Text | ToolResult | None

    @property
    def called_names(self) -> list[str]:
        """The names of all functions called so far, without duplicates."""
        calls = (call.name for turn in self.turns if isinstance(turn, ModelTurn) for call in turn.calls)
        return list(dict.fromkeys(calls))


_arguments = msgspec.json.Decoder(dict[str, Raw])


def read_conversation(messages: Messages, *, keeps_system_inside: bool = False) -> Conversation:
    """Reads the messages. With `keeps_system_inside`, system messages after the first turn stay in the turn of the user
    that they belong to, at its end; else, and where the user has no such turn, they join the leading ones."""
    reader, lasting = _Reader(keeps_system_inside=keeps_system_inside), messages.lasting
    thoughts = messages.thoughts
    for index, message in enumerate(messages.parsed[:lasting]):
        reader.add(message, thoughts.get(index))
    if lasting is None:
        reader.expect_results()
    prefix_end = reader.last_block
    if messages.context is not None:
        reader.turn_of(UserTurn).texts.append(Text(messages.context))
    for index, message in enumerate(messages.parsed[lasting:] if lasting is not None else (), start=lasting or 0):
        reader.add(message, thoughts.get(index))
    reader.expect_results()
    reader.end_users_turn()
    if not reader.turns:
        raise _refusal(Sentence("user_message_missing"))
    return Conversation(reader.system, reader.turns, prefix_end)


class _Reader:
    def __init__(self, *, keeps_system_inside: bool) -> None:
        self.system: list[Text] = []
        self.turns: list[Turn] = []
        self._keeps_system_inside = keeps_system_inside
        # Of the user's turn so far.
        self._system_inside: list[Text] = []
        # Calls of the last turn, and their results so far.
        self._asked: dict[str, PastCall] = {}
        self._given: dict[str, ToolResult] = {}

    @property
    def last_block(self) -> Text | ToolResult | None:
        """The last text or result; None if there is none, or calls wait for their results."""
        turn = self.turns[-1] if self.turns and not self._asked else None
        if turn is None or isinstance(turn, SystemTurn):
            return None
        return turn.results[-1] if isinstance(turn, ResultsTurn) else turn.texts[-1]

    def add(self, message: Message, thoughts: Mapping[int, Carried] | None = None) -> None:
        if message.role == "tool":
            self._add_result(message)
            return
        if message.role in ("system", "developer"):
            is_inside = self._keeps_system_inside and self.turns
            (self._system_inside if is_inside else self.system).extend(_texts_of(message))
            return
        self.expect_results()
        texts = _texts_of(message)
        if message.refusal is not ABSENT and _is_not_blank(message.refusal):
            texts.append(Text(message.refusal))
        calls = list(map(_read_call, message.calls))
        placed: list[PlacedThought] = []
        if thoughts is not None:
            texts, placed = _place(texts, thoughts)
            calls = [_signed(call, thoughts.get(place)) for place, call in enumerate(calls)]
        if not texts and not calls:
            # Providers refuse empty turns.
            return
        if message.role != "user":
            self.end_users_turn()
        turn = self.turn_of(UserTurn) if message.role == "user" else self.turn_of(ModelTurn)
        if isinstance(turn, ModelTurn):
            texts_before, calls_before = len(turn.texts), len(turn.calls)
            turn.thoughts += [
                PlacedThought(texts_before + at, calls_before + call_at, block) for at, call_at, block in placed
            ]
        turn.texts += texts
        if isinstance(turn, ModelTurn):
            turn.calls += calls
            self._asked = {call.call_id: call for call in calls}
            if len(self._asked) < len(calls):
                raise _refusal(Sentence("tool_call_ids_equal"))

    def turn_of(self, kind: type[_Turn]) -> _Turn:
        """Returns the last turn if it is of this kind, or else begins one."""
        turn = self.turns[-1] if self.turns else None
        if not isinstance(turn, kind):
            turn = kind()
            self.turns.append(turn)
        return turn

    def end_users_turn(self) -> None:
        """Adds the system messages of the user's turn behind it; they are not allowed elsewhere."""
        if self._system_inside and isinstance(self.turns[-1], UserTurn | ResultsTurn):
            self.turns.append(SystemTurn(self._system_inside))
        else:
            self.system += self._system_inside
        self._system_inside = []

    def expect_results(self) -> None:
        """Adds the turn of results, and refuses the request if a call has none."""
        if not self._asked:
            return
        if len(self._given) < len(self._asked):
            raise _refusal(Sentence("tool_result_missing"))
        self.turns.append(ResultsTurn([self._given[call_id] for call_id in self._asked]))
        self._asked, self._given = {}, {}

    def _add_result(self, message: Message) -> None:
        call_id = plain_id(message.tool_call_id or "")
        if call_id not in self._asked or call_id in self._given:
            raise _refusal(Sentence("tool_result_misplaced"))
        texts = _texts_of(message)
        marks = [text.cache_control for text in texts if text.cache_control is not None]
        text = join_strings([text.json for text in texts])
        self._given[call_id] = ToolResult(call_id, self._asked[call_id].name, text, marks[-1] if marks else None)


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
        raise _refusal(Sentence("tool_arguments_invalid")) from None
    return PastCall(plain_id(call.id or ""), function.name or "", Raw(arguments.encode()), call.extra_content)


def _signed(call: PastCall, carried: Carried | None) -> PastCall:
    signatures = [] if carried is None else [each for each in carried.thoughts if isinstance(each, CallSignature)]
    return replace(call, signature=signatures[0].signature) if signatures else call


def _place(texts: list[Text], thoughts: Mapping[int, Carried]) -> tuple[list[Text], list[PlacedThought]]:
    """Returns the texts, divided where the model thought in their middle, and its thoughts with their places."""
    placed: list[PlacedThought] = []
    for call_at, carried in sorted(thoughts.items()):
        for block in carried.thoughts:
            if isinstance(block, ThinkingBlock | RedactedBlock):
                if call_at > 0:
                    placed.append(PlacedThought(len(texts), call_at, block))
                    continue
                texts, at = _divided(texts, block.at)
                placed.append(PlacedThought(at, 0, block))
    return texts, placed


def _divided(texts: list[Text], characters: int) -> tuple[list[Text], int]:
    """Returns the texts with a boundary behind so many characters, and how many of them come before it."""
    for number, text in enumerate(texts):
        if not characters:
            return texts, number
        decoded = decode_string(text.json)
        if characters < len(decoded):
            first, second = (
                Text(encode_string(decoded[:characters])),
                Text(encode_string(decoded[characters:]), text.cache_control),
            )
            halves = [half for half in (first, second) if _is_not_blank(half.json)]
            return [*texts[:number], *halves, *texts[number + 1 :]], number + (halves[:1] == [first])
        characters -= len(decoded)
    return texts, len(texts)


def _texts_of(message: Message) -> list[Text]:
    """Returns the texts of a message that are not blank, with the client's marks."""
    content = message.content
    if isinstance(content, list):
        texts = [Text(part.text, part.cache_control or None) for part in content if part.text is not ABSENT]
    else:
        texts = list(map(Text, message.texts))
    return [text for text in texts if _is_not_blank(text.json)]


def _is_not_blank(text: Raw) -> bool:
    """Returns whether a text is not blank. Providers refuse blank texts, though models write them before a call."""
    return len(memoryview(text)) > _LONGEST_BLANK_BYTES or bool(decode_string(text).strip())


def _refusal(sentence: Sentence) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, sentence, param="messages")
