"""The sections of `make bench`, in the order in which they run."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from bench.measurements import (
    agents,
    beside_relay,
    big_prompt,
    cancellation,
    disk_sync,
    hot_account,
    journal,
    overload,
    promises,
    rpc_beside_http,
    slow_readers,
)
from bench.report import Progress, Row


class Options(NamedTuple):
    # Duration of each case, after its warm-up.
    seconds: float = beside_relay.SECONDS
    # Of the hot account.
    in_flight: int = 64
    # Of the comparisons with the relay and of transports.
    rounds: int = beside_relay.ROUNDS


class Section(NamedTuple):
    steps: Callable[[Options], int]
    measure: Callable[[Options, Progress], Iterator[Row]]
    # Compares the rows with the goals.
    verdict: Callable[[list[Row]], str] | None = None


SECTIONS: Final = {
    "beside-relay": Section(
        lambda options: beside_relay.steps(options.rounds),
        lambda options, progress: beside_relay.measure(progress, options.seconds, options.rounds),
        promises.verdict,
    ),
    "agents": Section(
        lambda options: beside_relay.steps(options.rounds, cases=agents.CASES),
        lambda options, progress: agents.measure(progress, options.seconds, options.rounds),
        promises.verdict,
    ),
    "rpc-beside-http": Section(
        lambda options: rpc_beside_http.steps(options.rounds),
        lambda options, progress: rpc_beside_http.measure(progress, options.seconds, options.rounds),
        rpc_beside_http.verdict,
    ),
    "disk-sync": Section(lambda options: 1, lambda options, progress: disk_sync.measure(progress)),
    "journal": Section(lambda options: len(journal.CASES), lambda options, progress: journal.measure(progress)),
    "hot-account": Section(
        lambda options: len(hot_account.CASES),
        lambda options, progress: hot_account.measure(options.seconds, options.in_flight, progress),
    ),
    "overload": Section(
        lambda options: overload.STEPS,
        lambda options, progress: overload.measure(options.seconds, progress),
        overload.verdict,
    ),
    "cancellation": Section(
        lambda options: cancellation.STEPS,
        lambda options, progress: cancellation.measure(options.seconds, progress),
        cancellation.verdict,
    ),
    "slow-readers": Section(
        lambda options: slow_readers.STEPS,
        lambda options, progress: slow_readers.measure(progress),
        slow_readers.verdict,
    ),
    "big-prompts": Section(
        lambda options: 1,
        lambda options, progress: big_prompt.measure(options.seconds, progress),
        big_prompt.verdict,
    ),
}
