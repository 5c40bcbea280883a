"""A run that never was."""

import msgspec

from bench.chats import Outcome, Percentiles
from bench.runs import Run
from bench.targets import DATABASE

OUTCOME = Outcome(
    started=1000,
    answered=1000,
    refused=0,
    chunks=0,
    connections=1,
    prompt_tokens=0,
    completion_tokens=0,
    chats_per_s=500.0,
    chunks_per_s=0.0,
    cpu_s=0.1,
    failures={},
    failed_status=0,
    failed_body="",
    whole_ms=Percentiles(2.0, 5.0, 9.0),
    first_ms=None,
    late_ms=None,
)


def run_of(chunks: int = 0, database_s: float | None = None, **cpu_s: float) -> Run:
    if database_s is not None:
        cpu_s[DATABASE] = database_s
    return Run(msgspec.structs.replace(OUTCOME, chunks=chunks), cpu_s, others_share=0.0, is_by_chunk=chunks > 0)
