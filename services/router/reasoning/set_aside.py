"""Sets aside what past messages of a model carry of its reasoning, until a model is chosen that takes it back.

It comes in the ids of calls, sealed; in `reasoning_details`, sealed too, of clients that asked for them; and as plain
text of clients that keep what they were told. Afterwards the messages have the vendors' short ids, and no reasoning.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import Raw

from services.chassis.timing.yielder import Yielder
from services.router.reasoning.sealed_ids import ID_PREFIX, ReasoningSeals
from services.router.schema.messages import ABSENT, SLICE_BYTES, Message, Messages, PastToolCall, decode_string
from services.router.schema.thoughts import (
    MARK,
    OF_MESSAGE,
    Carried,
    ReasoningDetail,
    ReasoningText,
    Thought,
    characters_of,
    join_carried,
)

# What `reasoning_details` of ours are called.
FORMAT: Final = "legato-v1"
# Of what a client sent itself; any model takes it that takes text.
CLIENTS_OWN: Final = ""
# Of all thoughts of a prompt; what is older is left out.
MOST_CHARACTERS: Final = 8 * 1024 * 1024

_QUOTE: Final = ord('"')

# Opens an id, or the data of a detail.
OpenId = Callable[[str], tuple[str, Carried | None]]
OpenData = Callable[[str], Carried | None]


class _Detail(msgspec.Struct, gc=False):
    format: str | None = None
    data: str | None = None


_details = msgspec.json.Decoder(list[Raw])
_detail = msgspec.json.Decoder(_Detail)


async def set_aside(
    messages: Messages, seals: ReasoningSeals, account_id: str, most_turns: int | None = None
) -> Messages:
    """Returns the messages without what they carry, and that beside them; the same if they carry nothing. Of thoughts,
    only those of so many turns that have some are kept, if that is limited: a turn ends where a user speaks."""
    if not messages.carries_thoughts:
        return messages
    reader = _Reader(seals, account_id)
    yielder = Yielder(SLICE_BYTES)
    parsed = messages.parsed.copy()
    turns = 0
    had_before = 0
    # From the newest, which matters most.
    for index in range(len(parsed) - 1, -1, -1):
        if parsed[index].role == "user" and len(reader.thoughts) > had_before:
            turns, had_before = turns + 1, len(reader.thoughts)
        parsed[index] = reader.read(index, parsed[index], keeps=most_turns is None or turns < most_turns)
        await yielder.spend(reader.take_cost())
    parsed = [reader.with_short_result_id(message) for message in parsed]
    return dataclasses.replace(
        messages,
        parsed=parsed,
        thoughts=reader.thoughts,
        carries_thoughts=False,
        object_bytes=messages.object_bytes + reader.characters,
        _given=(),
    )


class _Reader:
    def __init__(self, seals: ReasoningSeals, account_id: str) -> None:
        self._seals = seals
        self._account_id = account_id
        self.thoughts: dict[int, dict[int, Carried]] = {}
        self.characters = 0
        self._cost = 0
        # Short ids by those that the client has.
        self._short: dict[str, str] = {}

    def take_cost(self) -> int:
        cost, self._cost = self._cost, 0
        return cost

    def read(self, index: int, message: Message, *, keeps: bool) -> Message:
        """Takes out of a message what it carries, which is kept or not."""
        if message.role != "assistant":
            return message
        carried = dict(self._carried_by_calls(message))
        if not carried and (of_message := self._carried_by_message(message)) is not None:
            carried[OF_MESSAGE] = of_message
        if carried and keeps:
            self.thoughts[index] = carried
        calls = message.tool_calls
        if isinstance(calls, list):
            calls = [self._with_short_id(call) for call in calls]
        return msgspec.structs.replace(
            message, tool_calls=calls, reasoning_details=ABSENT, reasoning_content=ABSENT, reasoning=ABSENT
        )

    def with_short_result_id(self, message: Message) -> Message:
        call_id = message.tool_call_id
        if call_id is None or (MARK not in call_id and call_id not in self._short):
            return message
        short = self._short.get(call_id) or self._seals.open_id(call_id, self._account_id)[0]
        return msgspec.structs.replace(message, tool_call_id=short)

    def _carried_by_calls(self, message: Message) -> Iterator[tuple[int, Carried]]:
        is_unprefixed = False
        for place, call in enumerate(message.calls):
            if call.id is None or MARK not in call.id:
                continue
            short, carried = self._seals.open_id(call.id, self._account_id)
            own = carried.call_id if carried is not None else ""
            self._short[call.id] = own or short
            is_unprefixed = is_unprefixed or bool(own and not own.startswith(ID_PREFIX))
            if carried is not None and self._has_room(carried):
                yield place, carried
        if is_unprefixed:
            # So were the others that were made with it: some models are shown the ids.
            for call in message.calls:
                if call.id is not None and call.id not in self._short:
                    self._short[call.id] = call.id.removeprefix(ID_PREFIX) or call.id

    def _with_short_id(self, call: PastToolCall) -> PastToolCall:
        short = self._short.get(call.id or "")
        return call if short is None else msgspec.structs.replace(call, id=short)

    def _carried_by_message(self, message: Message) -> Carried | None:
        """Returns what the client was told and has sent back, or has from elsewhere."""
        sealed, details = self._read_details(message.reasoning_details)
        if sealed is not None:
            return sealed
        thoughts: list[Thought] = list(details)
        for field in ("reasoning_content", "reasoning"):
            value: Raw = getattr(message, field)
            if value is not ABSENT and memoryview(value)[0] == _QUOTE and (text := decode_string(value)):
                thoughts.append(ReasoningText(text, field))
        own = Carried(CLIENTS_OWN, "", thoughts)
        return own if thoughts and self._has_room(own) else None

    def _read_details(self, value: Raw) -> tuple[Carried | None, list[ReasoningDetail]]:
        """Returns what sealed details carry, or else the details of others."""
        others: list[ReasoningDetail] = []
        sealed: list[Carried] = []
        if value is ABSENT:
            return None, others
        try:
            given = _details.decode(value)
        except msgspec.DecodeError:
            return None, others
        for raw in given:
            try:
                detail = _detail.decode(raw)
            except (msgspec.DecodeError, RecursionError):
                continue
            if detail.format != FORMAT:
                others.append(ReasoningDetail(bytes(raw).decode()))
                continue
            carried = self._seals.open_data(detail.data or "", self._account_id)
            if carried is not None and self._has_room(carried):
                sealed.append(carried)
        return join_carried(sealed), [] if sealed else others

    def _has_room(self, carried: Carried) -> bool:
        characters = characters_of(carried.thoughts)
        self._cost += characters
        if self.characters + characters > MOST_CHARACTERS:
            return False
        self.characters += characters
        return True
