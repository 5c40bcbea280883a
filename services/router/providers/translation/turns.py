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
from services.router.prompts.json_text import is_list
from services.router.providers.translation.conversion import BYTES_PER_ELEMENT, ConversionYielder, read_list

# The ids that providers accept for a call.
_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_TEXT = (Raw(), Raw(b"null"))
# A longer text is assumed not to be blank, and is not decoded.
_LONGEST_BLANK_BYTES = 64


class _Function(msgspec.Struct, gc=False):
    name: str = ""
    arguments: str = ""


class _ToolCall(msgspec.Struct, gc=False):
    id: str = ""
    function: _Function = msgspec.field(default_factory=_Function)
    extra_content: Raw = Raw()


class _Message(msgspec.Struct, gc=False):
    role: str
    content: Raw = Raw()
    # The text of a refusal; a string, or null.
    refusal: Raw = Raw()
    tool_calls: list[Raw] | None = None
    tool_call_id: str | None = None


class _Part(msgspec.Struct, gc=False):
    text: Raw = Raw()


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


_message = msgspec.json.Decoder(_Message)
_tool_call = msgspec.json.Decoder(_ToolCall)
_part = msgspec.json.Decoder(_Part)
_arguments = msgspec.json.Decoder(dict[str, Raw])
_string = msgspec.json.Decoder(str)


async def read_conversation(messages_json: bytes, yielder: ConversionYielder) -> Conversation:
    reader = _Reader(yielder)
    try:
        for raw_message in await read_list(messages_json, yielder):
            await reader.add(_message.decode(raw_message))
            if yielder.is_due_after(raw_message):
                await yielder.pause()
    except (msgspec.DecodeError, RecursionError):
        raise _refusal("The messages could not be read.") from None
    await reader.expect_results()
    if not reader.turns:
        raise _refusal("The model needs at least one user message.")
    return Conversation(reader.system, reader.turns)


class _Reader:
    def __init__(self, yielder: ConversionYielder) -> None:
        self._yielder = yielder
        self.system: list[Raw] = []
        self.turns: list[Turn] = []
        # Calls of the last turn, and their results so far.
        self._asked: dict[str, PastCall] = {}
        self._given: dict[str, Raw] = {}

    async def add(self, message: _Message) -> None:
        if message.role == "tool":
            await self._add_result(message)
            return
        if message.role in ("system", "developer"):
            self.system += await self._texts(message.content)
            return
        if self._asked:
            await self.expect_results()
        texts = await self._texts(message.content) + await self._texts(message.refusal)
        calls = [] if message.tool_calls is None else await self._calls(message.tool_calls)
        if not texts and not calls:
            # Providers refuse empty turns.
            return
        last = self.turns[-1] if self.turns else None
        if message.role == "user":
            if not isinstance(last, UserTurn):
                last = UserTurn()
                self.turns.append(last)
            last.texts += texts
            return
        if not isinstance(last, ModelTurn):
            last = ModelTurn()
            self.turns.append(last)
        last.texts += texts
        last.calls += calls
        self._asked = {call.call_id: call for call in calls}
        if len(self._asked) < len(calls):
            raise _refusal("Two tool calls of one message have the same id.")

    async def expect_results(self) -> None:
        """Adds the turn of results, and refuses the request if a call has none."""
        if not self._asked:
            return
        if len(self._given) < len(self._asked):
            raise _refusal("Every tool call must be followed by a message with its result, before anything else.")
        results = []
        for call_id, call in self._asked.items():
            text = self._given[call_id]
            results.append(ToolResult(call_id, call.name, text))
            if self._yielder.is_due(BYTES_PER_ELEMENT):
                await self._yielder.pause()
        self.turns.append(ResultsTurn(results))
        self._asked, self._given = {}, {}

    async def _add_result(self, message: _Message) -> None:
        call_id = plain_id(message.tool_call_id or "")
        if call_id not in self._asked or call_id in self._given:
            raise _refusal("The result of a tool call must follow the message with the call, and only once.")
        self._given[call_id] = _joined(await self._texts(message.content))

    async def _calls(self, raw_calls: list[Raw]) -> list[PastCall]:
        calls = []
        for raw_call in raw_calls:
            calls.append(_read_call(_tool_call.decode(raw_call)))
            if self._yielder.is_due_after(raw_call):
                await self._yielder.pause()
        return calls

    async def _texts(self, content: Raw) -> list[Raw]:
        """Returns the texts of a message that are not blank."""
        if not is_list(content):
            return [content] if _says_something(content) else []
        texts = []
        for raw_part in await read_list(content, self._yielder):
            text = _part.decode(raw_part).text
            if _says_something(text):
                texts.append(text)
            if self._yielder.is_due_after(raw_part):
                await self._yielder.pause()
        return texts


def plain_id(call_id: str) -> str:
    """Returns the id, or a valid replacement, always the same for the same id."""
    if _PLAIN_ID.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode()).hexdigest()[:24]


def _read_call(call: _ToolCall) -> PastCall:
    arguments = call.function.arguments.strip() or "{}"
    try:
        _arguments.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        raise _refusal("The arguments of a tool call in the messages are not a JSON object.") from None
    return PastCall(plain_id(call.id), call.function.name, Raw(arguments.encode()), call.extra_content)


def _says_something(text: Raw) -> bool:
    """Tells if a text is not blank. Providers refuse blank texts, though models write them before a call."""
    if text in _NO_TEXT:
        return False
    return len(memoryview(text)) > _LONGEST_BLANK_BYTES or bool(_string.decode(text).strip())


def _joined(texts: list[Raw]) -> Raw:
    if len(texts) == 1:
        return texts[0]
    return Raw(msgspec.json.encode("".join(map(_string.decode, texts))))


def _refusal(message: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param="messages")
