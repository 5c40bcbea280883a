"""Entries a process leaves in its journal, wherever it dies."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.billing import journal_file
from edge.billing.journal import FREE, OPEN, SEAL, Journal, Slot, SlotPassedOn
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason

ANN = "acct_ann"
SLOTS = 4

Kept = tuple[str, str, int, bool, int, int]


def request_id(number: int) -> str:
    return f"{number:032x}"


def usage(prompt: int, completion: int) -> Usage:
    return Usage(prompt_tokens=prompt, completion_tokens=completion)


def kept(slot: Slot) -> Kept:
    return (slot.request_id, slot.account_id, slot.kind, slot.marked, slot.prompt_tokens, slot.completion_tokens)


def found_by_the_next_process(path: Path) -> list[Kept]:
    journal = Journal(path, SLOTS)
    try:
        return [kept(slot) for slot in journal.taken.values()]
    finally:
        journal.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "edge-1.journal"


def test_claimed_slot_is_found_by_the_next_process(path: Path) -> None:
    journal = Journal(path, SLOTS)
    journal.claim(request_id(1), ANN)
    journal.close()
    assert found_by_the_next_process(path) == [(request_id(1), ANN, OPEN, False, 0, 0)]


def test_counts_and_mark_are_found_as_they_were_last(path: Path) -> None:
    journal = Journal(path, SLOTS)
    slot = journal.claim(request_id(1), "a" * 64)
    slot.count(20, 1)
    slot.mark()
    slot.count(20, 2)
    journal.close()
    assert found_by_the_next_process(path) == [(request_id(1), "a" * 64, OPEN, True, 20, 2)]


def test_seal_is_found_with_its_basis_and_end(path: Path) -> None:
    journal = Journal(path, SLOTS)
    sealed = Usage(prompt_tokens=20, cached_tokens=10, completion_tokens=7)
    journal.claim(request_id(1), ANN).seal(sealed, pb.BASIS_PROVIDER, pb.END_COMPLETE)
    journal.close()
    reopened = Journal(path, SLOTS)
    [slot] = reopened.taken.values()
    assert (slot.kind, slot.usage, slot.basis, slot.end) == (SEAL, sealed, pb.BASIS_PROVIDER, pb.END_COMPLETE)
    reopened.close()


def test_freed_slot_is_not_found(path: Path) -> None:
    journal = Journal(path, SLOTS)
    slot = journal.claim(request_id(1), ANN)
    slot.free()
    assert slot.kind == FREE
    journal.close()
    assert found_by_the_next_process(path) == []


def test_slot_that_is_used_again_after_a_restart_is_found_as_the_new_request(path: Path) -> None:
    """Were the numbers of writes to start again, the old record would look newer than the new one."""
    journal = Journal(path, SLOTS)
    for number in range(5):
        slot = journal.claim(request_id(number), ANN)
        slot.count(1, 1)
        slot.free()
    journal.close()
    journal = Journal(path, SLOTS)
    journal.claim(request_id(9), ANN)
    journal.close()
    assert found_by_the_next_process(path) == [(request_id(9), ANN, OPEN, False, 0, 0)]


def test_handle_of_a_freed_slot_writes_nothing_into_the_request_that_has_it_now(path: Path) -> None:
    journal = Journal(path, 1)
    old = journal.claim(request_id(1), ANN)
    old.free()
    new = journal.claim(request_id(2), ANN)
    assert new.index == old.index
    writes: list[Callable[[], None]] = [lambda: old.count(9, 9), old.mark, old.free]
    for write in writes:
        with pytest.raises(SlotPassedOn):
            write()
    journal.close()
    assert found_by_the_next_process(path) == [(request_id(2), ANN, OPEN, False, 0, 0)]


def test_sealed_slot_never_changes_again(path: Path) -> None:
    journal = Journal(path, SLOTS)
    slot = journal.claim(request_id(1), ANN)
    slot.seal(usage(20, 7), pb.BASIS_COUNTED, pb.END_CLIENT_GONE)
    writes: list[Callable[[], None]] = [
        lambda: slot.count(9, 9),
        slot.mark,
        lambda: slot.seal(usage(9, 9), pb.BASIS_PROVIDER, pb.END_COMPLETE),
    ]
    for write in writes:
        with pytest.raises(SlotPassedOn):
            write()
    journal.close()
    assert found_by_the_next_process(path) == [(request_id(1), ANN, SEAL, False, 20, 7)]


def test_full_journal_refuses_the_next_request_until_one_is_freed(path: Path) -> None:
    journal = Journal(path, SLOTS)
    slots = [journal.claim(request_id(number), ANN) for number in range(SLOTS)]
    with pytest.raises(LegatoError) as refused:
        journal.claim(request_id(99), ANN)
    assert refused.value.reason is Reason.UNAVAILABLE
    assert refused.value.retry_after_s
    slots[2].free()
    journal.claim(request_id(99), ANN)
    journal.close()
    assert {found[0] for found in found_by_the_next_process(path)} == {request_id(n) for n in (0, 1, 3, 99)}


def test_journal_of_another_boot_is_lost(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages on the disk may be older after a reboot than what was told to metering."""
    journal = Journal(path, SLOTS)
    journal.claim(request_id(1), ANN)
    journal.close()
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("00000000-0000-0000-0000-000000000000\n")
    monkeypatch.setattr(journal_file, "_BOOT_ID", boot_id)
    journal = Journal(path, SLOTS)
    assert journal.is_lost
    assert journal.taken == {}
    journal.claim(request_id(2), ANN)
    journal.close()
    assert [found[0] for found in found_by_the_next_process(path)] == [request_id(2)]


def test_write_that_is_torn_anywhere_leaves_the_record_before_it(path: Path) -> None:
    journal = Journal(path, 1)
    slot = journal.claim(request_id(1), ANN)
    slot.count(20, 1)
    slot.mark()
    journal.close()
    before = path.read_bytes()
    journal = Journal(path, 1)
    [slot] = journal.taken.values()
    slot.count(20, 2)
    journal.close()
    after = path.read_bytes()
    [first, *_, last] = [at for at in range(len(after)) if before[at] != after[at]]
    for torn_at in range(first, last):
        path.write_bytes(after[:torn_at] + before[torn_at:])
        assert found_by_the_next_process(path) == [(request_id(1), ANN, OPEN, True, 20, 1)]
    path.write_bytes(after)
    assert found_by_the_next_process(path) == [(request_id(1), ANN, OPEN, True, 20, 2)]


def test_torn_claim_brings_no_request_back_that_had_the_slot_before(path: Path) -> None:
    story = Story(path)
    for step in (Story.claim, Story.count, Story.free):
        step(story, 0)
    story.die_in_a_claim(5)
    story.close()


class Story:
    """One process after the other on one journal, and what each must find."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._journal = Journal(path, SLOTS)
        self._expected: dict[str, Kept] = {}
        self._claimed = 0

    def claim(self, value: int) -> None:
        if len(self._journal.taken) < SLOTS:
            self._claimed += 1
            self._expect(self._journal.claim(request_id(self._claimed), ANN))

    def count(self, value: int) -> None:
        for slot in self._open(value):
            slot.count(value, slot.completion_tokens + 1)
            self._expect(slot)

    def mark(self, value: int) -> None:
        for slot in self._open(value):
            slot.mark()
            self._expect(slot)

    def seal(self, value: int) -> None:
        for slot in self._open(value):
            slot.seal(usage(value, value), pb.BASIS_COUNTED, pb.END_CLIENT_GONE)
            self._expect(slot)

    def free(self, value: int) -> None:
        for slot in list(self._journal.taken.values())[value % SLOTS :][:1]:
            slot.free()
            del self._expected[slot.request_id]

    def die(self, value: int) -> None:
        self._journal.close()
        self._journal = Journal(self._path, SLOTS)
        assert {slot.request_id: kept(slot) for slot in self._journal.taken.values()} == self._expected

    def die_in_a_count(self, value: int) -> None:
        before = self._path.read_bytes()
        for slot in self._open(value):
            slot.count(value, slot.completion_tokens + 1)
        self._tear(before, value)

    def die_in_a_claim(self, value: int) -> None:
        before = self._path.read_bytes()
        if len(self._journal.taken) < SLOTS:
            self._journal.claim(request_id(self._claimed + 1), ANN)
        self._tear(before, value)

    def _tear(self, before: bytes, value: int) -> None:
        after = self._path.read_bytes()
        if changed := [at for at in range(len(after)) if before[at] != after[at] and not _is_of_class(at)]:
            torn_at = changed[value % len(changed)]
            self._path.write_bytes(after[:torn_at] + before[torn_at:])
        self.die(value)

    def close(self) -> None:
        self._journal.close()

    def _open(self, value: int) -> list[Slot]:
        """One of those that can be written, if there is one."""
        slots = [slot for slot in self._journal.taken.values() if slot.kind == OPEN]
        return slots[value % len(slots) :][:1] if slots else []

    def _expect(self, slot: Slot) -> None:
        self._expected[slot.request_id] = kept(slot)


def _is_of_class(at: int) -> bool:
    """Returns whether a byte is part of the class, which is written before the record, though it is behind it."""
    in_slot = (at - journal_file.HEADER_BYTES) % journal_file.SLOT_BYTES
    return journal_file.SLOT_BYTES // 2 - 4 <= in_slot < journal_file.SLOT_BYTES // 2


_STEPS = st.sampled_from(
    [
        Story.claim,
        Story.count,
        Story.mark,
        Story.seal,
        Story.free,
        Story.die,
        Story.die_in_a_count,
        Story.die_in_a_claim,
    ]
)


@given(st.lists(st.tuples(_STEPS, st.integers(0, 99)), max_size=60))
def test_next_process_finds_exactly_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Callable[[Story, int], None], int]]
) -> None:
    story = Story(tmp_path_factory.mktemp("journal") / "edge-1.journal")
    for step, value in steps:
        step(story, value)
    story.die(0)
    story.close()


def class_found_by_the_next_process(path: Path) -> str:
    journal = Journal(path, SLOTS)
    try:
        [slot] = journal.taken.values()
        return slot.class_id
    finally:
        journal.close()


def test_the_class_of_a_request_is_found_by_the_next_process(path: Path) -> None:
    for class_id in ("mezzo", "fortissimo", ""):
        journal = Journal(path, SLOTS)
        for slot in list(journal.taken.values()):
            slot.free()
        journal.claim(request_id(1), ANN, class_id).count(20, 1)
        journal.close()
        assert class_found_by_the_next_process(path) == class_id


def test_the_class_of_a_request_is_not_taken_for_that_of_the_next_in_its_slot(path: Path) -> None:
    journal = Journal(path, SLOTS)
    slot = journal.claim(request_id(1), ANN, "forte")
    slot.free()
    # By a version that does not write classes.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slot, "write_class", lambda self: None)
        assert journal.claim(request_id(2), ANN).index == slot.index
    journal.close()
    assert class_found_by_the_next_process(path) == ""
