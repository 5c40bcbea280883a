"""An edge that starts after another one died, against a real metering."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.billing import recovery
from edge.billing.journal import Journal, Slot
from edge.billing.recovery import Journals
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from tests.edge.metering_harness import ANN, MeteringHarness, cost

CREDIT_NANOS = 10**9
PROMPT_TOKENS = 20


def usage(completion_tokens: int) -> Usage:
    return Usage(prompt_tokens=PROMPT_TOKENS, completion_tokens=completion_tokens)


def only_claimed(slot: Slot) -> None:
    pass


def first_piece_under_way(slot: Slot) -> None:
    slot.count(PROMPT_TOKENS, 3)


def in_mid_stream(slot: Slot) -> None:
    slot.count(PROMPT_TOKENS, 3)
    slot.mark()
    slot.count(PROMPT_TOKENS, 5)


def complete(slot: Slot) -> None:
    in_mid_stream(slot)
    slot.seal(usage(6), pb.BASIS_PROVIDER, pb.END_COMPLETE)


def given_up(slot: Slot) -> None:
    slot.seal(Usage(), pb.BASIS_UNSPECIFIED, pb.END_CLIENT_GONE)


# How far the request had come, and then: what is charged, what is booked as loss, the hold's state, basis and end.
DEATHS: list[tuple[Callable[[Slot], None], int, int, str, str | None, str]] = [
    (only_claimed, 0, 0, "void", None, "crashed"),
    (first_piece_under_way, 0, cost(PROMPT_TOKENS, 3), "void", None, "crashed"),
    (in_mid_stream, cost(PROMPT_TOKENS, 5), 0, "settled", "journal", "crashed"),
    (complete, cost(PROMPT_TOKENS, 6), 0, "settled", "provider", "complete"),
    (given_up, 0, 0, "void", None, "client_gone"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journals"


async def come_to(harness: MeteringHarness, journal: Journal, came: Callable[[Slot], None], number: int = 1) -> None:
    """A request that was reserved and came this far."""
    await harness.hold(number, journal).reserve(100, 10)
    [slot] = [slot for slot in journal.taken.values() if slot.request_id == f"{number:032x}"]
    came(slot)


async def die_with(harness: MeteringHarness, folder: Path, log: Log, came: Callable[[Slot], None]) -> None:
    journals = Journals(folder, log)
    await come_to(harness, journals.own, came)
    journals.close()


@pytest.mark.parametrize(("came", "charged_nanos", "loss_nanos", "state", "basis", "end"), DEATHS)
async def test_next_edge_settles_what_the_last_one_left(
    metering_harness: MeteringHarness,
    folder: Path,
    log: Log,
    came: Callable[[Slot], None],
    charged_nanos: int,
    loss_nanos: int,
    state: str,
    basis: str | None,
    end: str,
) -> None:
    await metering_harness.give(CREDIT_NANOS)
    await die_with(metering_harness, folder, log, came)
    assert (await metering_harness.balance())[1] > 0
    journals = Journals(folder, log)
    await journals.recover(metering_harness.metering)
    assert journals.own.taken == {}
    assert await metering_harness.balance() == (CREDIT_NANOS - charged_nanos, 0)
    hold = await metering_harness.read_hold(1)
    assert (hold.state, hold.charged_nanos, hold.loss_nanos, hold.basis, hold.end) == (
        state,
        charged_nanos,
        loss_nanos,
        basis,
        end,
    )
    journals.close()


async def test_request_that_was_never_reserved_is_marked_so_that_it_cannot_be_later(
    metering_harness: MeteringHarness, folder: Path, log: Log
) -> None:
    journals = Journals(folder, log)
    journals.own.claim(f"{1:032x}", ANN.account_id)
    journals.close()
    journals = Journals(folder, log)
    await journals.recover(metering_harness.metering)
    assert journals.own.taken == {}
    assert (await metering_harness.read_hold(1)).state == "void"
    journals.close()


async def test_recovery_that_dies_is_done_again_by_the_next_edge(
    metering_harness: MeteringHarness, folder: Path, log: Log
) -> None:
    """Its settlement was written, and it died before it could free the slot."""
    await metering_harness.give(CREDIT_NANOS)
    await die_with(metering_harness, folder, log, in_mid_stream)
    journals = Journals(folder, log)
    before = (folder / "edge-1.journal").read_bytes()
    await journals.recover(metering_harness.metering)
    journals.close()
    (folder / "edge-1.journal").write_bytes(before)
    journals = Journals(folder, log)
    await journals.recover(metering_harness.metering)
    assert journals.own.taken == {}
    assert await metering_harness.balance() == (CREDIT_NANOS - cost(PROMPT_TOKENS, 5), 0)
    journals.close()


async def test_journal_without_an_owner_is_settled_by_the_edge_that_starts_next(
    metering_harness: MeteringHarness, folder: Path, log: Log
) -> None:
    """Happens when an installation restarts with fewer workers."""
    await metering_harness.give(CREDIT_NANOS)
    living, second, third = Journals(folder, log), Journals(folder, log), Journals(folder, log)
    living.own.claim(f"{7:032x}", ANN.account_id)
    await come_to(metering_harness, second.own, in_mid_stream, number=2)
    await come_to(metering_harness, third.own, complete, number=3)
    second.close()
    third.close()
    journals = Journals(folder, log)
    await journals.recover(metering_harness.metering)
    charged_nanos = cost(PROMPT_TOKENS, 5) + cost(PROMPT_TOKENS, 6)
    assert await metering_harness.balance() == (CREDIT_NANOS - charged_nanos, 0)
    # Those of a living edge are its own.
    assert [slot.request_id for slot in living.own.taken.values()] == [f"{7:032x}"]
    # What it does not need, another one may have.
    Journal(folder / "edge-3.journal").close()
    journals.close()
    living.close()


async def test_settlements_wait_in_the_journal_for_a_metering_that_is_away(
    metering_harness: MeteringHarness, folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "TIMEOUT_S", 0.1)
    await metering_harness.give(CREDIT_NANOS)
    await die_with(metering_harness, folder, log, complete)
    await metering_harness.shut()
    journals = Journals(folder, log)
    await journals.recover(metering_harness.metering)
    assert len(journals.own.taken) == 1
    await metering_harness.open()
    async with asyncio.timeout(60):
        assert await metering_harness.balance() == (CREDIT_NANOS - cost(PROMPT_TOKENS, 6), 0)
    assert journals.own.taken == {}
    journals.close()


async def test_journal_that_cannot_be_read_is_set_aside_with_a_word_and_keeps_no_edge_from_serving(
    metering_harness: MeteringHarness, folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    """Happens after an upgrade if edges had not settled everything."""
    await metering_harness.give(CREDIT_NANOS)
    own, other = Journals(folder, log), Journals(folder, log)
    await come_to(metering_harness, own.own, in_mid_stream, number=1)
    await come_to(metering_harness, other.own, in_mid_stream, number=2)
    own.close()
    other.close()
    for name in ("edge-1.journal", "edge-2.journal"):
        (folder / name).write_bytes(b"LEGATO0\n" + (folder / name).read_bytes()[8:])
    journals = Journals(folder, log)
    await journals.recover(metering_harness.metering)
    assert journals.own.taken == {}
    lost = [json.loads(line) for line in log_text().splitlines() if "journal.lost" in line]
    assert [(line["name"], line["reason"]) for line in lost] == [
        ("edge-1.journal.lost-1", "version"),
        ("edge-2.journal.lost-1", "version"),
    ]
    # The version that wrote it could still settle it.
    assert all((folder / line["name"]).stat().st_size for line in lost)
    journals.close()


def test_folder_that_cannot_be_written_is_named_at_start(tmp_path: Path, log: Log) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="LEGATO_JOURNALS"):
        Journals(tmp_path / "file" / "journals", log)
