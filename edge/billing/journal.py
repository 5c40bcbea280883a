"""The journal of an edge, for recovery after a crash: one slot of counters for every unsettled request.

The file is memory-mapped, so what was written survives a crash of the process, but not of the machine: after another
boot its pages may be old, and it counts as lost. A slot has two halves, each with a checksum, and a write goes to the
half that is not the newest: a process that dies during a write leaves the record before it intact. Message content is
never written here.
"""

import mmap
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from edge.billing.journal_file import HEADER_BYTES, SLOT_BYTES, JournalFile
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import unavailable
from services.chassis.process import failpoints
from services.rules.model_classes import CLASSES

# More requests than one process can have in flight; all of them together take 4 MB.
SLOTS: Final = 16_384
LONGEST_ACCOUNT_ID: Final = 64

# The kinds of record. OPEN: credit may be held, and this much may have been delivered. SEAL: the final result; without
# a basis, nothing is charged.
FREE: Final = 0
OPEN: Final = 1
SEAL: Final = 2

# A change of a slot's layout needs another version in the file's header.
# Request and account, which stay the same while the slot is taken.
_OWNER: Final = struct.Struct(f"<16s{LONGEST_ACCOUNT_ID}s")
# Write number, generation, kind, basis, end, mark; prompt, cached and completion tokens. Other parts of usage,
# which change no charge, have no room.
_COUNTS: Final = struct.Struct("<QIBBBBqqq")
# A whole record: the checksum of what follows, the owner, the counts.
_RECORD: Final = struct.Struct(f"<I{_OWNER.size}s{_COUNTS.size}s")
# Bound once: a piece of an answer is counted by little more than these.
_pack_counts: Final = _COUNTS.pack
_write_record: Final = _RECORD.pack_into
_HALF_BYTES: Final = SLOT_BYTES // 2
_UNTOUCHED: Final = bytes(SLOT_BYTES)
# Behind the first half's record: a part of the owner's checksum, and the number of the class, counted from 1.
_CLASS: Final = struct.Struct("<I")
_OWNER_PART: Final = 0xFFFFFF00
_CLASS_NUMBERS: Final = {class_id: number for number, class_id in enumerate(CLASSES, 1)}


class SlotPassedOn(Exception):
    """The slot is sealed, or belongs to another request by now: a bug of ours; nothing was written."""


class _Record(NamedTuple):
    """A record. Its fields are in the order of comparison: the newest is the greatest."""

    write_no: int
    generation: int
    kind: int
    basis: int
    end: int
    mark: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    request_id: str
    account_id: str


class Slot:
    """One request's place in the journal. Once it is freed, the next request has the place under a handle of its own,
    and this one can no longer write."""

    __slots__ = (
        "_generation",
        "_journal",
        "_owner",
        "_owner_checksum",
        "account_id",
        "basis",
        "cached_tokens",
        "class_id",
        "completion_tokens",
        "end",
        "index",
        "kind",
        "marked",
        "prompt_tokens",
        "request_id",
        "start",
    )  # fmt: skip

    def __init__(self, journal: "Journal", index: int, generation: int, request_id: str, account_id: str) -> None:
        self._journal = journal
        self._generation = generation
        self._owner = _OWNER.pack(bytes.fromhex(request_id), account_id.encode())
        self._owner_checksum = zlib.crc32(self._owner)
        # Offset of the half that is written next.
        self.start = journal.next_halves[index]
        self.index = index
        self.request_id = request_id
        self.account_id = account_id
        # The class is known after a restart, too.
        self.class_id = ""
        self.kind = OPEN
        self.basis: pb.Basis.ValueType = pb.BASIS_UNSPECIFIED
        self.end: pb.End.ValueType = pb.END_UNSPECIFIED
        # Something has reached the client. Before that, it is unknown whether the first count was delivered.
        self.marked = False
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
        )

    def count(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0, kind: int = OPEN) -> None:
        """Records the totals delivered, before the next delivery. All other records are written by this, too: it makes
        no further call, because every piece of an answer waits for it."""
        if self.kind != OPEN and kind != FREE:
            raise SlotPassedOn
        journal, start = self._journal, self.start
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        self.cached_tokens = cached_tokens
        journal.write_no += 1
        counts = _pack_counts(
            journal.write_no,
            self._generation,
            kind,
            self.basis,
            self.end,
            self.marked,
            prompt_tokens,
            cached_tokens,
            completion_tokens,
        )
        checksum = zlib.crc32(counts, self._owner_checksum)
        if failpoints.watched:
            failpoints.hit("edge.torn", partial(self._tear, checksum, counts))
        _write_record(journal.map, start, checksum, self._owner, counts)
        self.start = start ^ _HALF_BYTES
        self.kind = kind

    def mark(self) -> None:
        """Records the first delivery."""
        if self.kind != OPEN:
            raise SlotPassedOn
        self.marked = True
        self.count(self.prompt_tokens, self.completion_tokens, self.cached_tokens)

    def seal(self, usage: Usage, basis: "pb.Basis.ValueType", end: "pb.End.ValueType") -> None:
        """Records the result before it is reported. Without a basis, nothing is charged."""
        if self.kind != OPEN:
            raise SlotPassedOn
        self.basis, self.end = basis, end
        self.count(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, SEAL)

    def free(self) -> None:
        """Frees the slot; only allowed once metering has acknowledged the result."""
        if self.kind == FREE:
            raise SlotPassedOn
        self.count(self.prompt_tokens, self.completion_tokens, self.cached_tokens, FREE)
        self._journal.release(self)

    def write_class(self) -> None:
        """Writes the class beside the records. Versions before this one do not read it."""
        number = _CLASS_NUMBERS.get(self.class_id, 0)
        _CLASS.pack_into(self._journal.map, self._class_start, self._owner_checksum & _OWNER_PART | number)

    @property
    def _class_start(self) -> int:
        return HEADER_BYTES + self.index * SLOT_BYTES + _RECORD.size

    def restore(self, record: _Record) -> None:
        [written] = _CLASS.unpack_from(self._journal.map, self._class_start)
        if written & _OWNER_PART == self._owner_checksum & _OWNER_PART and 0 < written & 0xFF <= len(CLASSES):
            self.class_id = CLASSES[(written & 0xFF) - 1]
        self.kind = record.kind
        self.basis, self.end = cast(Any, record.basis), cast(Any, record.end)
        self.marked = bool(record.mark)
        self.prompt_tokens = record.prompt_tokens
        self.cached_tokens = record.cached_tokens
        self.completion_tokens = record.completion_tokens

    def _tear(self, checksum: int, counts: bytes) -> None:
        """Writes the first half of a record, as a process does that dies meanwhile."""
        start = self.start
        self._journal.map[start : start + 64] = _RECORD.pack(checksum, self._owner, counts)[:64]


class Journal:
    """A journal, owned by one process until that ends."""

    def __init__(self, path: Path, slots: int = SLOTS) -> None:
        """Raises JournalTaken or JournalSetAside. Slots left in the file are in `taken`."""
        # Never reset, so that an old record is never taken for a newer one.
        self.write_no = 0
        self.taken: dict[int, Slot] = {}
        self._file = JournalFile(path, slots)
        self._slots = self._file.slots
        # It is of another boot, so its content was unreliable.
        self.is_lost = self._file.is_of_another_boot
        self.map = mmap.mmap(self._file.number, self._file.size_bytes)
        self._generations = [0] * self._slots
        # Offset of the half of each slot that is written next, while the slot is free.
        self.next_halves = [HEADER_BYTES + index * SLOT_BYTES for index in range(self._slots)]
        self._recover()
        # The slot that was freed last is taken first, so that pages which are not needed are never touched.
        self._free = [index for index in reversed(range(self._slots)) if index not in self.taken]

    def claim(self, request_id: str, account_id: str, class_id: str = "") -> Slot:
        """Takes a slot, before credit is held."""
        if not self._free:
            raise unavailable("Room for another request")
        index = self._free.pop()
        self._generations[index] += 1
        slot = Slot(self, index, self._generations[index], request_id, account_id)
        slot.class_id = class_id
        self.taken[index] = slot
        slot.write_class()
        slot.count(0, 0)
        return slot

    def close(self) -> None:
        self.map.close()
        self._file.close()

    def release(self, slot: Slot) -> None:
        del self.taken[slot.index]
        self.next_halves[slot.index] = slot.start
        self._free.append(slot.index)

    def _recover(self) -> None:
        for index, start in enumerate(self.next_halves):
            if self.map[start : start + SLOT_BYTES] == _UNTOUCHED:
                continue
            halves = [self._read(start), self._read(start + _HALF_BYTES)]
            newest = max((half for half in halves if half is not None), default=None)
            if newest is None:
                # The very first write was torn, so nothing can have followed it.
                continue
            self.write_no = max(self.write_no, newest.write_no)
            self._generations[index] = newest.generation
            self.next_halves[index] = start if halves[1] == newest else start + _HALF_BYTES
            if newest.kind != FREE:
                slot = Slot(self, index, newest.generation, newest.request_id, newest.account_id)
                slot.restore(newest)
                self.taken[index] = slot

    def _read(self, start: int) -> _Record | None:
        checksum, owner, counts = _RECORD.unpack_from(self.map, start)
        if checksum != zlib.crc32(counts, zlib.crc32(owner)):
            return None
        request_id, account_id = _OWNER.unpack(owner)
        return _Record._make((*_COUNTS.unpack(counts), request_id.hex(), account_id.rstrip(b"\0").decode()))
