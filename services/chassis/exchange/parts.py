"""Payloads that come in parts, until they are whole."""

from protos.type.v1.exchange_pb2 import Item


class PartialPayloads:
    """Those of one exchange, by the calls they belong to."""

    __slots__ = ("_by_call",)

    def __init__(self) -> None:
        self._by_call: dict[int, list[bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_call)

    def add(self, item: Item) -> None:
        self._by_call.setdefault(item.call_id, []).append(item.payload)

    def whole(self, item: Item) -> bytes:
        """The payload that the item ends; mostly that is its own."""
        if not self._by_call or (parts := self._by_call.pop(item.call_id, None)) is None:
            return item.payload
        return b"".join((*parts, item.payload))

    def forget(self, call_id: int) -> None:
        self._by_call.pop(call_id, None)
