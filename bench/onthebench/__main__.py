"""`python -m bench.onthebench`: starts Legato as its entry in the open benchmark does, and measures what that benchmark
measures, on the path from OpenAI's API to OpenAI's API, against our own mock upstream.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from bench.chats import Case, Outcome, Percentiles, Upstream, started_upstream
from bench.children import ROOT
from bench.onthebench.prepare import LEGATO, READY, prepare, rendered
from bench.processors import Watch, resident_mib
from bench.report import Progress, Row, table
from bench.runs import SETTLE_S, run, warm_up
from bench.targets import ONE_CHAT, Target, direct, port_of

ENTRY: Final = Path(__file__).with_name("gateway")
GATEWAY: Final = "Legato"
# Of the benchmark: the tails at which throughput is read, and the concurrency at which a request's cost is.
TAILS_MS: Final = (1, 5, 10, 50, 100, None)
COST_IN_FLIGHT: Final = 8
RUNGS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
STREAM: Final = Case("one stream", in_flight=1, chunks=64, pause_us=20_000)
END_S: Final = 60


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=4.0, show_default=True, help="Seconds for each load.")
def onthebench(seconds: float) -> None:
    """Measure Legato by the lanes of the open benchmark, beside its upstream alone: about two minutes."""
    progress = Progress(sys.stderr, steps=2 * (len(RUNGS) + 1))
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name:
        folder = Path(name)
        with started_upstream(folder) as upstream, started_entry(upstream, folder) as gateway:
            gateway.put_load(ONE_CHAT, folder, progress, chats=1)
            rows = list(measure(upstream, gateway, folder, progress, seconds, RUNGS))
    progress.clear()
    click.echo(table(rows))


@contextmanager
def started_entry(upstream: Upstream, folder: Path) -> Iterator[Target]:
    """Starts the service by the entry's files, as the benchmark does."""
    entry = folder / "legato"
    shutil.copytree(ENTRY, entry)
    own = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    environ = {**own, "PYTHONPATH": str(ROOT)}
    prepare(entry, environ)
    definition: dict[str, Any] = json.loads((entry / "definition.json").read_text())
    values = {"GW_DIR": str(entry), "GW_PORT": "0", "MOCK_PORT": str(port_of(upstream.base_url))}
    for file in definition["config_files"]:
        (entry / file["output"]).write_text(rendered(entry / file["template"], values))
    arguments = [argument.format(**values) for argument in definition["launch"]["args"]]
    settings = dict(line.split("=", 1) for line in (entry / "env").read_text().splitlines() if line[0] != "#")
    with (entry / "log").open("w") as log:
        service = subprocess.Popen(
            [LEGATO, *arguments], env={**environ, **settings}, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert service.stdout is not None
        ready = next((line for line in service.stdout if READY in line), None)
        if ready is None:
            raise click.ClickException(f"The service did not start: {(entry / 'log').read_text()[-500:]}")
        port = port_of(ready.split(READY)[1].strip())
        yield Target(GATEWAY, port, {GATEWAY: service.pid}, definition["auth"], definition["model"])
    finally:
        service.terminate()
        service.communicate(timeout=END_S)


def measure(
    upstream: Upstream, gateway: Target, folder: Path, progress: Progress, seconds: float, rungs: Sequence[int]
) -> Iterator[Row]:
    idle_mib = resident_mib(gateway.processes)[GATEWAY]
    warm_up(gateway, folder, progress)
    ladder: dict[str, list[Outcome]] = {}
    costs_us: dict[str, float] = {}
    for target in (direct(upstream), gateway):
        for in_flight in rungs:
            case = Case(f"{in_flight} at once", in_flight=in_flight)
            progress.step(f"{case.name}: {target.name}", seconds + SETTLE_S)
            one = run(target, case, upstream, folder, progress, seconds)
            ladder.setdefault(target.name, []).append(one.outcome)
            if in_flight == COST_IN_FLIGHT and (cost_ms := one.whole_cost()) is not None:
                costs_us[target.name] = 1000 * cost_ms
    watch = Watch(gateway.processes, family=os.getpid())
    streamed = {}
    for target in (direct(upstream), gateway):
        progress.step(f"{STREAM.name}: {target.name}", seconds + SETTLE_S)
        streamed[target.name] = target.put_load(STREAM, folder, progress, seconds=seconds)
    others_share = watch.spent().others_share
    yield from rows_of(ladder, streamed, costs_us, idle_mib, resident_mib(gateway.processes)[GATEWAY], others_share)


def rows_of(
    ladder: Mapping[str, Sequence[Outcome]],
    streamed: Mapping[str, Outcome],
    costs_us: Mapping[str, float],
    idle_mib: float,
    after_mib: float,
    others_share: float,
) -> Iterator[Row]:
    of_mock, of_gateway = ladder[next(iter(ladder))], ladder[GATEWAY]
    mock_stream, stream = streamed[next(iter(streamed))], streamed[GATEWAY]
    figures: dict[str, float | None] = {
        "added p99 µs, 1 at once": _added_us(of_gateway[0].whole_ms, of_mock[0].whole_ms, "p99"),
        f"CPU µs a request, {COST_IN_FLIGHT} at once": costs_us.get(GATEWAY),
        "first token added p50 µs": _added_us(stream.first_ms, mock_stream.first_ms, "p50"),
        "frame added p99 µs": _added_us(stream.late_ms, mock_stream.late_ms, "p99"),
        "idle MiB": idle_mib,
        "after MiB": after_mib,
    }
    yield Row("open benchmark", "OpenAI to OpenAI", figures, others_share)
    for name, outcomes in ladder.items():
        rates: dict[str, float | None] = {
            f"p99 <= {tail_ms} ms" if tail_ms else "any p99": frontier(outcomes, tail_ms) for tail_ms in TAILS_MS
        }
        yield Row("requests/s", name, rates, others_share)


def frontier(outcomes: Sequence[Outcome], tail_ms: float | None) -> float | None:
    """Returns the most requests a second of the rungs that refused none, with a p99 within the bound."""
    rates = [
        outcome.chats_per_s
        for outcome in outcomes
        if not outcome.refused and outcome.whole_ms and (tail_ms is None or outcome.whole_ms.p99 <= tail_ms)
    ]
    return max(rates, default=None)


def _added_us(times: Percentiles | None, of_mock: Percentiles | None, name: str) -> float | None:
    return None if times is None or of_mock is None else 1000 * (getattr(times, name) - getattr(of_mock, name))


if __name__ == "__main__":
    onthebench()
