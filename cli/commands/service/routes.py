"""`legato routes`."""

import sys
from pathlib import Path
from typing import Any

import click

from cli.connection import CallRefused, call_service
from cli.options import Invocation, shared_options, takes_invocation
from cli.output import show_json
from protos.router.v1.router_pb2 import BreakerState, ListTargetsRequest, ReloadRoutesRequest, Target
from services.chassis.errors import Reason
from services.chassis.settings import SettingsError

BREAKER_STATES = {
    BreakerState.BREAKER_STATE_CLOSED: "closed",
    BreakerState.BREAKER_STATE_OPEN: "open",
    BreakerState.BREAKER_STATE_HALF_OPEN: "half-open",
}
COLUMNS = ["class", "provider", "model", "breaker", "attempts", "failures", "latency_ms", "running", "limit"]
MISTAKEN = 2


@click.group()
@shared_options
def routes() -> None:
    """Check and reload the routes, and show the state of their models."""


@routes.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@takes_invocation
def check(invocation: Invocation, file: Path) -> None:
    """Report every mistake in a routes file, and exit with 2 if there is any. Works offline."""
    from services.router.routing.routes import load_routes

    mistakes: list[str] = []
    try:
        load_routes(file)
    except SettingsError as error:
        mistakes = str(error).splitlines()
    if invocation.json:
        show_json({"ok": not mistakes, "mistakes": mistakes})
    else:
        click.echo("\n".join(mistakes) or "The routes are valid.")
    if mistakes:
        sys.exit(MISTAKEN)


@routes.command()
@takes_invocation
def reload(invocation: Invocation) -> None:
    """Reload the routes file on every router. Running chats go on; a file with a mistake changes nothing."""
    outcomes: list[dict[str, Any]] = []
    failures: list[str] = []
    for router, stub in invocation.services.routers.items():
        targets, mistakes = None, []
        try:
            targets = len(call_service(stub.ReloadRoutes, ReloadRoutesRequest()).targets)
        except CallRefused as error:
            mistakes = error.message.splitlines()
        outcomes.append({"router": router, "reloaded": not mistakes, "targets": targets, "mistakes": mistakes})
        failures += (f"{router}: {mistake}" for mistake in mistakes)
    invocation.show_list(outcomes, ["router", "reloaded", "targets"])
    _fail_for(failures)


@routes.command()
@takes_invocation
def show(invocation: Invocation) -> None:
    """List the models of each class in the order of fallback, with their circuit breakers and figures."""
    routers = invocation.services.routers
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    for router, stub in routers.items():
        try:
            rows += (
                describe(router, target) for target in call_service(stub.ListTargets, ListTargetsRequest()).targets
            )
        except CallRefused as error:
            failures.append(f"{router}: {error.message}")
    invocation.show_list(rows, ["router", *COLUMNS] if len(routers) > 1 else COLUMNS)
    _fail_for(failures)


def _fail_for(failures: list[str]) -> None:
    """Raises for failures, after the results were shown."""
    if failures:
        raise CallRefused("\n".join(failures), Reason.REQUEST_INVALID)


def describe(router: str, target: Target) -> dict[str, Any]:
    latency_ms = round(1000 * target.median_latency_s, 1) if target.HasField("median_latency_s") else None
    return {
        "router": router,
        "class": target.class_id,
        "provider": target.provider,
        "model": target.model_name,
        "breaker": BREAKER_STATES.get(target.breaker_state, "unknown"),
        "attempts": target.attempts,
        "failures": target.failures,
        "latency_ms": latency_ms,
        "running": target.running,
        "limit": target.limit if target.HasField("limit") else None,
    }
