"""`python -m bench.soak`: chats of all kinds for half an hour, half of whose clients disconnect, and a check for
leaks."""

import sys
from pathlib import Path

import click
import msgspec

from bench.children import CompilerMissing
from bench.report import Progress
from bench.soak.campaign import started_campaign
from bench.soak.judgement import PROMISED_MIB_PER_H, Soak, table

WARM_UP_MOST_S = 480.0
WARM_UP_SHARE = 0.4


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", default=30.0, show_default=True, help="Duration in minutes.")
@click.option("--chats-per-s", default=80.0, show_default=True, help="New clients per second.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write all samples to this file."
)
def soak(minutes: float, chats_per_s: float, json_file: Path | None) -> None:
    """Look for leaks: memory, tasks, descriptors, connections, slots, holds."""
    seconds = 60 * minutes
    progress = Progress(sys.stderr, steps=2)
    try:
        with started_campaign(progress, chats_per_s) as campaign:
            seen = campaign.run(seconds, min(WARM_UP_MOST_S, WARM_UP_SHARE * seconds))
    except CompilerMissing as missing:
        raise click.ClickException(str(missing)) from None
    finally:
        progress.clear()
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(seen)) + b"\n")
    click.echo(f"{table(seen)}\n\n{_summary(seen)}")
    for violation in (violations := seen.violations()):
        click.echo(violation)
    sys.exit(1 if violations else 0)


def _summary(seen: Soak) -> str:
    outcome = seen.outcome
    judged = f"at most {PROMISED_MIB_PER_H:g} MiB an hour" if seen.is_judged else "too short to judge memory by"
    return (
        f"{outcome.chats:,} chats in {seen.seconds / 60:.0f} minutes: {outcome.answered:,} answered,"
        f" {outcome.left:,} left by their clients, {outcome.refused:,} refused as expected,"
        f" {outcome.turned_away:,} told to retry."
        f" Warm-up {seen.warm_up_s / 60:.0f} minutes; {judged}."
    )


if __name__ == "__main__":
    soak()
