"""What waits to be written to an exchange."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from protos.type.v1 import exchange_pb2 as pb
from protos.type.v1.exchange_pb2 import Item
from services.chassis.telemetry.metrics import Histogram

MESSAGE_BYTES = 64 * 1024
# An item that is larger is sent in parts of this size: gRPC refuses messages of some megabytes, and what breaks an
# exchange breaks the calls of everybody.
PART_BYTES = 1024 * 1024
# How far a call may run ahead of its reader, and what each message counts beside its payload: while it waits it is an
# object of its own, and most are so small that they are little else.
WINDOW_BYTES = 64 * 1024
MESSAGE_OVERHEAD_BYTES = 64

_ITEM_OVERHEAD_BYTES = 32


class Opening(NamedTuple):
    """What an item that opens a call says beside its payload."""

    method: str
    timeout_ms: int
    traceparent: str


# Call, kind, payload. An item is made of it only in its message: to make it before would copy it once more.
_Waiting = tuple[int, "pb.ItemKind.ValueType", bytes, Opening | None]


class Outbox:
    """Calls take turns, one item each, so that a long answer does not hold up the short ones. Control items go first:
    they are small, and a reader who is to be stopped should not have to wait."""

    def __init__(self, message_type: Callable[[], Any], message_items: Histogram) -> None:
        """`message_items` is told how many items each message has."""
        self._message_type = message_type
        self._message_items = message_items
        self._control: list[Item] = []
        # Of each call that has something to send, the first; in the order of their turns. Then what follows it.
        self._turns: dict[int, _Waiting] = {}
        self._later: dict[int, deque[_Waiting]] = {}
        self._wake: asyncio.Future[None] | None = None
        self._closed = False

    def put(
        self, call_id: int, kind: "pb.ItemKind.ValueType", payload: bytes = b"", opening: Opening | None = None
    ) -> None:
        if len(payload) > PART_BYTES:
            payload = self._put_parts(call_id, payload)
        waiting = (call_id, kind, payload, opening)
        if call_id not in self._turns:
            self._turns[call_id] = waiting
        elif call_id in self._later:
            self._later[call_id].append(waiting)
        else:
            self._later[call_id] = deque((waiting,))
        if self._wake is not None:
            self._notify()

    def _put_parts(self, call_id: int, payload: bytes) -> bytes:
        """All but the last, which is given back."""
        last = (len(payload) - 1) // PART_BYTES * PART_BYTES
        for begin in range(0, last, PART_BYTES):
            self.put(call_id, pb.ITEM_KIND_PART, payload[begin : begin + PART_BYTES])
        return payload[last:]

    def put_end(self, call_id: int) -> None:
        """The call is over. If its last message is still here, that says so."""
        later = self._later.get(call_id)
        last = later[-1] if later else self._turns.get(call_id)
        if last is None or last[1] != pb.ITEM_KIND_MESSAGE or not last[2]:
            self.put(call_id, pb.ITEM_KIND_END)
            return
        end = (call_id, pb.ITEM_KIND_END, last[2], None)
        if later:
            later[-1] = end
        else:
            self._turns[call_id] = end

    def put_control(self, item: Item) -> None:
        self._control.append(item)
        self._notify()

    def drop(self, call_id: int) -> bool:
        """Forget what a call still wanted to send. Whether that was all of it, from its opening on."""
        first = self._turns.pop(call_id, None)
        self._later.pop(call_id, None)
        return first is not None and first[1] == pb.ITEM_KIND_OPEN

    def close(self) -> None:
        """Nothing more will be put; `take` ends once all is taken."""
        self._closed = True
        self._notify()

    async def next_message(self) -> Any | None:
        """Wait until there is something, then take a message's worth. None: closed."""
        while not self._control and not self._turns:
            if self._closed:
                return None
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        message = self._message_type()
        items = message.items
        if self._control:
            items.extend(self._control)
            self._control.clear()
        for call_id, kind, payload, opening in self._take_turns(is_first=not items):
            item = items.add()
            item.call_id = call_id
            item.kind = kind
            item.payload = payload
            if opening is not None:
                item.method, item.timeout_ms, item.traceparent = opening
        self._message_items.observe(len(items))
        return message

    def _take_turns(self, *, is_first: bool) -> Iterator[_Waiting]:
        """As many as fit; one, however large, if it is the first."""
        size_bytes = 0
        while self._turns:
            turns, self._turns = self._turns, {}
            for taken, waiting in enumerate(turns.values()):
                size_bytes += len(waiting[2]) + _ITEM_OVERHEAD_BYTES
                if size_bytes > MESSAGE_BYTES and not is_first:
                    self._turns = {**dict(islice(turns.items(), taken, None)), **self._turns}
                    return
                is_first = False
                yield waiting
                if self._later and (later := self._later.get(waiting[0])):
                    self._turns[waiting[0]] = later.popleft()
                    if not later:
                        del self._later[waiting[0]]

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
