"""`python -m bench.peers`: measures other gateways in the same run as the relay and Legato."""

import sys
from pathlib import Path
from typing import Final

import click

from bench.chats import AnswersWrong
from bench.children import CompilerMissing
from bench.figures import present
from bench.measurements import agents, beside_relay, promises
from bench.measurements.beside_relay import MANY, SLOW_10, Starter
from bench.peers.gateways import started_portkey, started_tensorzero
from bench.peers.litellm import started_litellm, started_litellm_with_keys
from bench.readme import update_if_quiet
from bench.report import Progress
from bench.targets import LITELLM, LITELLM_WITH_KEYS, PORTKEY, TENSORZERO, ChargesWrong

PEERS: Final[dict[str, Starter]] = {
    LITELLM: started_litellm,
    LITELLM_WITH_KEYS: started_litellm_with_keys,
    TENSORZERO: started_tensorzero,
    PORTKEY: started_portkey,
}
CASES: Final = (*agents.CASES, MANY, SLOW_10)
# Fewer and shorter than without peers, which take several times as long.
SECONDS: Final = 2.0
ROUNDS: Final = 2


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=SECONDS, show_default=True, help="Seconds for each case.")
@click.option("--rounds", default=ROUNDS, show_default=True, help="Number of rounds; the medians are reported.")
@click.option("--only", type=click.Choice(list(PEERS)), multiple=True, help="Measure this peer; repeat for more.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures to this file."
)
@click.option("--write/--no-write", default=True, help="Write the figures into the documents.  [default: write]")
def bench_peers(seconds: float, rounds: int, only: tuple[str, ...], json_file: Path | None, write: bool) -> None:
    """Measure LiteLLM, TensorZero and Portkey beside the relay and Legato, with prompts as agents send them: about
    twelve minutes."""
    peers = [PEERS[name] for name in only or PEERS]
    progress = Progress(sys.stderr, steps=beside_relay.steps(rounds, peers, CASES))
    failures: list[str] = []
    try:
        rows = list(beside_relay.measure(progress, seconds, rounds, peers, failures, CASES))
    except (AnswersWrong, ChargesWrong, CompilerMissing) as wrong:
        raise click.ClickException(str(wrong)) from None
    finally:
        progress.clear()
    figures = present(rows, [promises.verdict(rows), *failures], json_file)
    if write and not only:
        update_if_quiet(figures)


if __name__ == "__main__":
    bench_peers()
