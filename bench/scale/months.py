"""Compares the cost of a chat after ten entries with that after ten years of closed months, and times the audit then.

`LEGATO_BENCH_ENTRIES` is the number of entries in those years: each million takes some ten seconds of CPU time to write
and to close, and 350 MB. `LEGATO_BENCH_OPEN_ENTRIES` is the number of those in this month, which the audit reads.
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
    open_entries = int(os.environ.get("LEGATO_BENCH_OPEN_ENTRIES", entries // MONTHS))
    closed = Size("closed", 1_000, 1_000, ledger_rows=entries, months=MONTHS, open_rows=open_entries)
    yield from flatness.measure(progress, seconds, rounds, stores, (FEW, closed), new_keys_a_round)


def verdict(rows: Sequence[Row]) -> str:
    audit_s = max(row.figures[flatness.AUDIT_CPU_S] or 0.0 for row in rows if flatness.AUDIT_CPU_S in row.figures)
    open_entries = max(row.figures["open rows"] or 0.0 for row in rows if "open rows" in row.figures)
    entries = max(row.figures["ledger rows"] or 0.0 for row in rows if "ledger rows" in row.figures)
    kept = "kept" if audit_s <= AUDIT_MOST_S else "BROKEN"
    return (
        f"After {entries:,.0f} entries in closed months an audit of {open_entries:,.0f} more takes {audit_s:.1f} s"
        f" of CPU time; promised are {AUDIT_MOST_S:.0f}: {kept}. {flatness.verdict(rows)}"
    )
