"""What waits to be written to an exchange."""

import asyncio
from collections import deque

from protos.type.v1.exchange_pb2 import Item
from services.chassis.metrics import Histogram

MESSAGE_BYTES = 64 * 1024
# How far a call may run ahead of its reader, and what each message counts beside its payload: while it waits it is an
# object of its own, and most are so small that they are little else.
WINDOW_BYTES = 64 * 1024
MESSAGE_OVERHEAD_BYTES = 64

_ITEM_OVERHEAD_BYTES = 32


class Outbox:
    """Calls take turns, one item each, so that a long answer does not hold up the short ones. Control items go first:
    they are small, and a reader who is to be stopped should not have to wait."""

    def __init__(self, message_items: Histogram) -> None:
        """`message_items` is told how many items each message has."""
        self._message_items = message_items
        self._control: deque[Item] = deque()
        self._waiting: dict[int, deque[Item]] = {}
        self._turns: deque[int] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._closed = False

    def put(self, item: Item) -> None:
        queue = self._waiting.get(item.call_id)
        if queue is None:
            self._waiting[item.call_id] = deque((item,))
            self._turns.append(item.call_id)
        else:
            queue.append(item)
        self._notify()

    def put_control(self, item: Item) -> None:
        self._control.append(item)
        self._notify()

    def drop(self, call_id: int) -> list[Item]:
        """Forget what a call still wanted to send, and say what that was."""
        queue = self._waiting.pop(call_id, None)
        if queue is None:
            return []
        self._turns.remove(call_id)
        return list(queue)

    def close(self) -> None:
        """Nothing more will be put; `take` ends once all is taken."""
        self._closed = True
        self._notify()

    async def take(self) -> list[Item]:
        """Wait until there is something, then take a message's worth. Empty: closed."""
        while not self._control and not self._turns:
            if self._closed:
                return []
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        items = list(self._control)
        self._control.clear()
        size_bytes = 0
        while self._turns and size_bytes < MESSAGE_BYTES:
            call_id = self._turns[0]
            queue = self._waiting[call_id]
            size_bytes += len(queue[0].payload) + _ITEM_OVERHEAD_BYTES
            if size_bytes > MESSAGE_BYTES and items:
                break
            self._turns.popleft()
            items.append(queue.popleft())
            if queue:
                self._turns.append(call_id)
            else:
                del self._waiting[call_id]
        self._message_items.observe(len(items))
        return items

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
