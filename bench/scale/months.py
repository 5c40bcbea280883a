"""Compares the cost of a chat after ten entries with that after ten years of closed months, and times the audit then.

`LEGATO_BENCH_ENTRIES` is the number of entries in those years: a hundred million take hours to write and to close.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Final

from bench.report import Progress, Row
from bench.scale import flatness
from bench.scale.filling import FEW, Size

MONTHS: Final = 120
ENTRIES: Final = 10_000_000
AUDIT_MOST_S: Final = 60.0


def measure(
    progress: Progress,
    seconds: float,
    rounds: int = flatness.ROUNDS,
    stores: Sequence[str] = flatness.STORES,
    new_keys_a_round: int = flatness.NEW_KEYS_A_ROUND,
) -> Iterator[Row]:
    entries = int(os.environ.get("LEGATO_BENCH_ENTRIES", ENTRIES))
    closed = Size("closed", accounts=1_000, keys=1_000, ledger_rows=entries, months=MONTHS)
    yield from flatness.measure(progress, seconds, rounds, stores, (FEW, closed), new_keys_a_round)


def verdict(rows: Sequence[Row]) -> str:
    audit_s = max(row.figures["audit s"] or 0.0 for row in rows if "audit s" in row.figures)
    entries = max(row.figures["ledger rows"] or 0.0 for row in rows if "ledger rows" in row.figures)
    kept = "kept" if audit_s <= AUDIT_MOST_S else "BROKEN"
    return (
        f"After {entries:,.0f} entries in closed months an audit takes {audit_s:.1f} s;"
        f" promised are {AUDIT_MOST_S:.0f}: {kept}. {flatness.verdict(rows)}"
    )
