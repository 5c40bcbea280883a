"""Compares the cost of a chat among few accounts, keys and ledger entries with that among many, in turns."""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec

from bench.chats import AnswersWrong, Upstream, encode_request, started_upstream
from bench.connections import Connections
from bench.measurements.beside_relay import MANY as CASE
from bench.processors import Spent, Watch
from bench.report import Progress, Row
from bench.runs import SETTLE_S, run, warm_up
from bench.scale.filling import FEW, MANY, Size, fill
from bench.targets import DATABASE, ON_POSTGRESQL, ON_SQLITE, OURS, SETTINGS, ChargeCheck, Target, legato_target
from tests.support.servers.postgres import Postgres
from tests.support.service import Service

SAME_KEY: Final = "the same key"
NEW_KEYS: Final = "a new key each"
OF_FEW: Final = "of few"
AUDIT_CPU_S: Final = "audit CPU s"
PROMISED_MOST: Final = 1.15
ROUNDS: Final = 5
NEW_KEYS_A_ROUND: Final = 200
STORES: Final = (ON_SQLITE, ON_POSTGRESQL)
SIZES: Final = (FEW, MANY)
# What was filled in is written once, and vacuumed then: not while chats are measured.
POSTGRES_SETTINGS: Final = {
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "autovacuum": "off",
}


class FlatnessHarness(NamedTuple):
    """One service with filled databases, and an account for each round."""

    size: Size
    target: Target
    service: Service
    charge_checks: list[ChargeCheck]
    new_keys: list[list[str]]
    fill_s: float


class Cost(NamedTuple):
    """The cost of a chat by process."""

    cpu_ms: dict[str, float]
    others_share: float

    @property
    def ours_ms(self) -> float:
        return sum(self.cpu_ms.get(process, 0.0) for process in OURS)


def steps(rounds: int = ROUNDS, stores: Sequence[str] = STORES) -> int:
    return len(stores) * (len(SIZES) + 2 * rounds * len(SIZES) + len(SIZES))


def measure(
    progress: Progress,
    seconds: float,
    rounds: int = ROUNDS,
    stores: Sequence[str] = STORES,
    sizes: Sequence[Size] = SIZES,
    new_keys_a_round: int = NEW_KEYS_A_ROUND,
) -> Iterator[Row]:
    for store in stores:
        with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name, ExitStack() as opened:
            folder = Path(name)
            upstream = opened.enter_context(started_upstream(folder))
            harnesses = [
                opened.enter_context(_filled(store, size, upstream, folder, progress, rounds, new_keys_a_round))
                for size in sizes
            ]
            costs: dict[tuple[str, str], list[Cost]] = {}
            for number in range(rounds):
                # The order alternates, so that warm caches help both equally.
                for harness in harnesses if number % 2 else harnesses[::-1]:
                    progress.step(f"{store}, {harness.size.name}: {SAME_KEY}", seconds + SETTLE_S)
                    target = harness.target._replace(
                        api_key=harness.charge_checks[number].api_key, charge_check=harness.charge_checks[number]
                    )
                    seen = run(target, CASE, upstream, folder, progress, seconds)
                    spent = Spent(seen.cpu_s, seen.others_share)
                    costs.setdefault((SAME_KEY, harness.size.name), []).append(_cost(spent, seen.outcome.answered))
                    progress.step(f"{store}, {harness.size.name}: {NEW_KEYS}", new_keys_a_round / 100)
                    costs.setdefault((NEW_KEYS, harness.size.name), []).append(_ask_with_new_keys(harness, number))
            audits = [_audit(harness, progress) for harness in harnesses]
        for case in (SAME_KEY, NEW_KEYS):
            yield from rows_of(case, store, [costs[case, size.name] for size in sizes], sizes)
        for harness, audit in zip(harnesses, audits, strict=True):
            figures: dict[str, float | None] = {
                "accounts": harness.size.accounts,
                "keys": harness.size.keys,
                "ledger rows": harness.size.ledger_rows,
                "open rows": harness.size.open_rows,
                "to fill s": harness.fill_s,
                "first answer s": harness.target.first_answer_s,
                "audit s": audit.took_s,
                AUDIT_CPU_S: audit.cpu_s,
            }
            yield Row("databases", f"{store}, {harness.size.name}", figures, 0.0)


def verdict(rows: Sequence[Row]) -> str:
    worst = max((row.figures[OF_FEW] or 0.0 for row in rows if OF_FEW in row.figures), default=0.0)
    kept = "kept" if worst <= PROMISED_MOST else "BROKEN"
    return f"Among very many a chat costs up to {worst:.2f} times as much; promised are {PROMISED_MOST:g}: {kept}."


@contextmanager
def _filled(
    store: str, size: Size, upstream: Upstream, folder: Path, progress: Progress, rounds: int, new_keys: int
) -> Iterator[FlatnessHarness]:
    progress.step(f"{store}: filling in {size.ledger_rows:,} bookings", size.ledger_rows / 50_000)
    with ExitStack() as opened:
        # The auditor's cost is not part of a chat; it is measured separately.
        settings = {**SETTINGS, "LEGATO_AUDIT_INTERVAL_S": "0", "LEGATO_RETENTION_INTERVAL_S": "0"}
        database: dict[str, int] = {}
        if store == ON_POSTGRESQL:
            postgres = Postgres(durable=True, settings=POSTGRES_SETTINGS)
            postgres.start()
            opened.callback(postgres.stop)
            settings["LEGATO_DATABASE_URL"] = postgres.create_database()
            database[DATABASE] = postgres.process_id
        service = opened.enter_context(Service(upstream, settings))
        # The first start creates the tables.
        charge_checks = [ChargeCheck(service) for _ in range(rounds)]
        service.stop()
        began_at_s = time.monotonic()
        fill(size, service.data, settings.get("LEGATO_DATABASE_URL", ""))
        fill_s, began_at_s = time.monotonic() - began_at_s, time.monotonic()
        service.start()
        target = legato_target(f"{store}, {size.name}", service, charge_checks[0])
        target = target._replace(processes={**target.processes, **database})
        target.put_load(CASE, folder, progress, chats=1)
        target = target._replace(first_answer_s=time.monotonic() - began_at_s)
        warm_up(target, folder, progress)
        keys = [[service.new_key(check.account_id) for _ in range(new_keys)] for check in charge_checks]
        yield FlatnessHarness(size, target, service, charge_checks, keys, fill_s)


def _ask_with_new_keys(harness: FlatnessHarness, number: int) -> Cost:
    """Sends chats with new keys, each of which auth has to look up among all others."""
    keys = harness.new_keys[number]
    target = harness.target
    requests = [encode_request(CASE, key, target.model, target.path, target.headers) for key in keys]
    watch = Watch(target.processes, family=os.getpid())
    answers = asyncio.run(_ask_all(target.port, requests))
    time.sleep(SETTLE_S)
    spent = watch.spent()
    for answer in answers:
        harness.charge_checks[number].add_usage(*_tokens(answer))
    return _cost(spent, len(keys))


async def _ask_all(port: int, requests: Sequence[bytes]) -> list[bytes]:
    """Sends the requests, eight at a time."""
    connections = Connections("127.0.0.1", port)
    waiting = list(requests)
    answers: list[bytes] = []

    async def ask() -> None:
        while waiting:
            answers.append((await connections.ask(waiting.pop())).received)

    await asyncio.gather(*(ask() for _ in range(8)))
    connections.close()
    return answers


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Body(msgspec.Struct):
    usage: _Usage


def _tokens(answer: bytes) -> tuple[int, int]:
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise AnswersWrong(f"{NEW_KEYS}: {answer[-300:]!r}")
    usage = msgspec.json.decode(body, type=_Body).usage
    return usage.prompt_tokens, usage.completion_tokens


def _cost(spent: Spent, chats: int) -> Cost:
    return Cost({process: 1000 * cpu_s / chats for process, cpu_s in spent.cpu_s.items()}, spent.others_share)


class Audit(NamedTuple):
    took_s: float
    # Of our processes and of the database's.
    cpu_s: float


def _audit(harness: FlatnessHarness, progress: Progress) -> Audit:
    """Times an audit, and checks all charges to the nano."""
    progress.step(f"auditing {harness.target.name}", harness.size.ledger_rows / 50_000)
    for charge_check in harness.charge_checks:
        charge_check.check_charges()
    watch, began_at_s = Watch(harness.target.processes, family=os.getpid()), time.monotonic()
    harness.charge_checks[0].check()
    return Audit(time.monotonic() - began_at_s, sum(watch.spent().cpu_s.values()))


def rows_of(case: str, store: str, by_size: Sequence[Sequence[Cost]], sizes: Sequence[Size]) -> Iterator[Row]:
    few_ms, few_database_ms = _median_ms(by_size[0]), _median_ms(by_size[0], DATABASE)
    for size, costs in zip(sizes, by_size, strict=True):
        ours_ms, database_ms = _median_ms(costs), _median_ms(costs, DATABASE)
        figures: dict[str, float | None] = {
            "CPU ms a chat": ours_ms,
            OF_FEW: ours_ms / few_ms,
            "least": min(cost.ours_ms for cost in costs),
            "most": max(cost.ours_ms for cost in costs),
            **{process: _median_ms(costs, process) for process in OURS},
            DATABASE: database_ms or None,
            "database's of few": database_ms / few_database_ms if few_database_ms else None,
        }
        yield Row(f"flat: {case}", f"{store}, {size.name}", figures, median(cost.others_share for cost in costs))


def _median_ms(costs: Sequence[Cost], process: str = "") -> float:
    """Returns the median over all our processes, or of one."""
    return median(cost.cpu_ms.get(process, 0.0) if process else cost.ours_ms for cost in costs)
