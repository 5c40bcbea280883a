"""The text of an answer as it was relayed, kept where it is needed again: for citations, or to go on elsewhere."""

from collections.abc import Sequence

from services.chassis.packed_pieces import PACKED_HEAD_BYTES, SEPARATOR, read_texts, write_texts


class Transcript:
    """Keeps the JSON of the texts, as it is in packed pieces, and decodes it only if it is asked for."""

    __slots__ = ("_most_bytes", "_texts_json", "is_whole")

    def __init__(self, most_bytes: int | None = None) -> None:
        """Nothing is kept of an answer that is longer than `most_bytes`."""
        self._most_bytes = most_bytes
        self._texts_json = bytearray()
        self.is_whole = True

    def add(self, contents: Sequence[str]) -> None:
        if contents:
            self._add(write_texts(contents))

    def add_packed(self, packed: bytes) -> None:
        self._add(packed[PACKED_HEAD_BYTES:])

    @property
    def text(self) -> str:
        return "".join(read_texts(self._texts_json)) if self._texts_json else ""

    def _add(self, texts_json: bytes) -> None:
        if not self.is_whole:
            return
        kept = self._texts_json
        if kept:
            kept += SEPARATOR
        kept += texts_json
        if self._most_bytes is not None and len(kept) > self._most_bytes:
            self.is_whole = False
            self._texts_json = bytearray()
