"""`python -m bench.peers`: measures other gateways in the same run as the relay and Legato."""

import sys
from pathlib import Path
from typing import Final

import click

from bench.chats import AnswersWrong
from bench.children import CompilerMissing
from bench.figures import present
from bench.measurements import beside_relay, promises
from bench.measurements.beside_relay import Starter
from bench.peers.gateways import started_litellm, started_portkey, started_tensorzero
from bench.report import Progress
from bench.targets import ChargesWrong

PEERS: Final[tuple[Starter, ...]] = (started_litellm, started_portkey, started_tensorzero)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=beside_relay.SECONDS, show_default=True, help="Seconds for each case.")
@click.option(
    "--rounds", default=beside_relay.ROUNDS, show_default=True, help="Number of rounds; the medians are reported."
)
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures to this file."
)
def bench_peers(seconds: float, rounds: int, json_file: Path | None) -> None:
    """Measure LiteLLM, Portkey and TensorZero beside the relay and Legato: about half an hour."""
    progress = Progress(sys.stderr, steps=beside_relay.steps(rounds, PEERS))
    failures: list[str] = []
    try:
        rows = list(beside_relay.measure(progress, seconds, rounds, PEERS, failures))
    except (AnswersWrong, ChargesWrong, CompilerMissing) as wrong:
        raise click.ClickException(str(wrong)) from None
    finally:
        progress.clear()
    present(rows, [promises.verdict(rows), *failures], json_file)


if __name__ == "__main__":
    bench_peers()
