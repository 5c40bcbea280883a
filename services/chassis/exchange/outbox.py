"""The queue of items to be written to an exchange."""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice
from struct import Struct
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from legato_protos.type.v1 import exchange_pb2 as pb
from legato_protos.type.v1.exchange_pb2 import Item
from services.chassis.telemetry.metrics import Histogram

MESSAGE_BYTES = 64 * 1024
# Larger payloads are sent in parts of this size: gRPC rejects messages of some megabytes, and a broken exchange breaks
# all of its calls.
PART_BYTES = 1024 * 1024
# Flow-control window of a call, and each message's overhead in it: queued messages are objects, and most payloads are
# tiny.
WINDOW_BYTES = 64 * 1024
MESSAGE_OVERHEAD_BYTES = 64

_ITEM_OVERHEAD_BYTES = 32
# Call and size of a packed payload.
_PACKED_HEAD = Struct("<QI")
_PACKED_HEAD_BYTES = _PACKED_HEAD.size
_read_packed_head = _PACKED_HEAD.unpack_from

# How long after a message an item that may wait is sent. A message costs each side as much as twenty items do.
GATHER_S = 0.004


class ExchangeMessage(Protocol):
    """A message in either direction: each service has its own types of them. Those of a router also have `packed`."""

    @property
    def items(self) -> RepeatedCompositeFieldContainer[Item]: ...


MessageT_co = TypeVar("MessageT_co", bound=ExchangeMessage, covariant=True)


class Opening(NamedTuple):
    """The fields of an item that opens a call, beside its payload."""

    method: str
    traceparent: str


# Call, kind, payload. The item is created inside its message: creating it earlier would copy the payload again.
_Waiting = tuple[int, "pb.ItemKind.ValueType", bytes, Opening | None]


class Outbox(Generic[MessageT_co]):
    """A fair queue: calls take turns, one item each, so that a long answer does not delay short ones. Control items go
    first: they are small, and a cancellation should not wait.

    An item that may wait leaves some milliseconds after the previous message, together with what has come meanwhile;
    any other leaves at once, before those that wait, and takes them along."""

    def __init__(self, message_type: Callable[..., MessageT_co], message_items: Histogram) -> None:
        """Creates an empty queue; `message_items` counts the items per message."""
        self._message_type = message_type
        self._message_items = message_items
        self._loop = asyncio.get_running_loop()
        self._control: list[Item] = []
        # The next item of each call that has any, in the order of turns, with those that may not wait apart; then the
        # items that follow it.
        self._urgent: dict[int, _Waiting] = {}
        self._turns: dict[int, _Waiting] = {}
        self._later: dict[int, deque[_Waiting]] = {}
        # Payloads in their packed form, with their heads. They leave before the items of the same message.
        self._packed: list[bytes] = []
        self._packed_bytes = 0
        # Everything queued is to be sent now.
        self._is_due = False
        self._sent_at_s = -GATHER_S
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def put(
        self,
        call_id: int,
        kind: "pb.ItemKind.ValueType",
        payload: bytes = b"",
        opening: Opening | None = None,
        *,
        may_wait: bool = False,
    ) -> None:
        """Queues an item; one that `may_wait` is gathered with others."""
        if len(payload) > PART_BYTES:
            payload = self._put_parts(call_id, payload)
        waiting = (call_id, kind, payload, opening)
        if call_id in self._turns or call_id in self._urgent:
            self._later.setdefault(call_id, deque()).append(waiting)
            if not may_wait:
                self._hurry(call_id)
            else:
                self._wake_when_due()
        elif may_wait:
            self._turns[call_id] = waiting
            self._wake_when_due()
        else:
            self._urgent[call_id] = waiting
            self._send_now()

    def put_packed(self, call_id: int, payload: bytes) -> None:
        """Queues a payload in its packed form, which may wait."""
        if call_id in self._turns or call_id in self._urgent or self._packed_bytes > MESSAGE_BYTES:
            # It may not overtake the call's items; and what does not fit takes its turn.
            self.put(call_id, pb.ITEM_KIND_MESSAGE, payload, may_wait=True)
            return
        size_bytes = len(payload)
        self._packed.append(_PACKED_HEAD.pack(call_id, size_bytes) + payload)
        self._packed_bytes += size_bytes + _ITEM_OVERHEAD_BYTES
        if len(self._packed) == 1:
            # For all others the message is due already, or its timer set.
            self._wake_when_due()

    def _put_parts(self, call_id: int, payload: bytes) -> bytes:
        """Queues all parts but the last, which it returns."""
        last = (len(payload) - 1) // PART_BYTES * PART_BYTES
        for begin in range(0, last, PART_BYTES):
            self.put(call_id, pb.ITEM_KIND_PART, payload[begin : begin + PART_BYTES])
        return payload[last:]

    def put_end(self, call_id: int) -> None:
        """Ends the call. If its last message is still queued, that one carries the end."""
        later = self._later.get(call_id)
        last = later[-1] if later else self._urgent.get(call_id) or self._turns.get(call_id)
        if last is None or last[1] != pb.ITEM_KIND_MESSAGE or not last[2]:
            self.put(call_id, pb.ITEM_KIND_END)
            return
        self._hurry(call_id)
        end = (call_id, pb.ITEM_KIND_END, last[2], None)
        if later:
            later[-1] = end
        else:
            self._urgent[call_id] = end

    def put_control(self, item: Item) -> None:
        self._control.append(item)
        self._send_now()

    def drop(self, call_id: int) -> bool:
        """Drops a call's queued items. Returns whether that was all of it, including its opening."""
        first = self._urgent.pop(call_id, None) or self._turns.pop(call_id, None)
        self._later.pop(call_id, None)
        return first is not None and first[1] == pb.ITEM_KIND_OPEN

    def close(self) -> None:
        """Closes the queue; `next_message` returns None once it is empty."""
        self._closed = True
        self._send_now()

    async def next_message(self) -> MessageT_co | None:
        """Waits until items are due and returns the next message of them; None once closed and empty."""
        while not (self._control or self._urgent or ((self._packed or self._turns) and self._is_time())):
            if self._closed:
                return None
            self._wake = self._loop.create_future()
            if self._packed or self._turns:
                self._wake_when_due()
            try:
                await self._wake
            finally:
                self._wake = None
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
        packed, size_bytes = self._packed, self._packed_bytes
        if packed:
            self._packed, self._packed_bytes = [], 0
        message = self._message_type(packed=b"".join(packed)) if packed else self._message_type()
        items = message.items
        if self._control:
            items.extend(self._control)
            self._control.clear()
        if self._urgent or self._turns:
            for call_id, kind, payload, opening in self._take_turns(size_bytes, is_first=not (items or packed)):
                item = items.add()
                item.call_id = call_id
                item.kind = kind
                item.payload = payload
                if opening is not None:
                    item.method, item.traceparent = opening
        # What did not fit is sent next, without delay.
        self._is_due = bool(self._turns)
        self._sent_at_s = self._loop.time()
        self._message_items.observe(len(items) + len(packed))
        return message

    def _take_turns(self, size_bytes: int, *, is_first: bool) -> list[_Waiting]:
        """Returns items up to the message size, of which `size_bytes` are used; the first one whatever its size."""
        taken_items: list[_Waiting] = []
        while self._urgent or self._turns:
            turns, self._urgent, self._turns = {**self._urgent, **self._turns}, {}, {}
            for taken, waiting in enumerate(turns.values()):
                size_bytes += len(waiting[2]) + _ITEM_OVERHEAD_BYTES
                if size_bytes > MESSAGE_BYTES and not is_first:
                    self._turns = {**dict(islice(turns.items(), taken, None)), **self._turns}
                    return taken_items
                is_first = False
                taken_items.append(waiting)
                if self._later and (later := self._later.get(waiting[0])):
                    self._turns[waiting[0]] = later.popleft()
                    if not later:
                        del self._later[waiting[0]]
        return taken_items

    def _hurry(self, call_id: int) -> None:
        """Sends a call's items now, before those of others that may wait."""
        if call_id in self._turns:
            self._urgent[call_id] = self._turns.pop(call_id)
        self._send_now()

    def _is_time(self) -> bool:
        return self._is_due or self._closed or self._loop.time() >= self._sent_at_s + GATHER_S

    def _wake_when_due(self) -> None:
        if self._wake is None or self._timer is not None:
            return
        if self._is_time():
            self._send_now()
        else:
            self._timer = self._loop.call_at(self._sent_at_s + GATHER_S, self._send_now)

    def _send_now(self) -> None:
        self._is_due = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def read_packed(packed: bytes) -> list[tuple[int, bytes]]:
    """Returns the calls and their payloads of a message's packed part."""
    payloads = []
    at, end = 0, len(packed)
    while at < end:
        call_id, size_bytes = _read_packed_head(packed, at)
        begin = at + _PACKED_HEAD_BYTES
        at = begin + size_bytes
        payloads.append((call_id, packed[begin:at]))
    return payloads


class PartialPayloads(dict[int, list[bytes]]):
    """The incomplete payloads of one exchange, by call. Mostly it is empty, and then it need not be asked."""

    def add(self, item: Item) -> None:
        self.setdefault(item.call_id, []).append(item.payload)

    def whole(self, item: Item) -> bytes:
        """Returns the payload that the item completes; mostly that is its own."""
        parts = self.pop(item.call_id, None)
        return item.payload if parts is None else b"".join((*parts, item.payload))


# A message costs each side as much as twenty items do. So the delay grows with the calls in flight; alone, an item is
# sent at once.
DELAY_PER_CALL_S: Final = 0.000025
LONGEST_DELAY_S: Final = 0.005
# A shorter one is not worth its timer, which has a resolution of milliseconds.
SHORTEST_DELAY_S: Final = 0.001


async def delay_send(calls: int) -> None:
    """Waits, with so many calls in flight."""
    delay_s = min(LONGEST_DELAY_S, calls * DELAY_PER_CALL_S)
    if delay_s >= SHORTEST_DELAY_S:
        await asyncio.sleep(delay_s)
