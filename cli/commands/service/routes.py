"""`legato routes`."""

import sys
from datetime import date
from pathlib import Path
from typing import Any

import click

from cli.command import Invocation, command_group
from cli.connection import CallRefused, call_service
from cli.descriptions import described, value_of
from legato_protos.router.v1.router_pb2 import ListTargetsRequest, ReloadRoutesRequest, Target
from services.chassis.errors import Reason
from services.chassis.settings import SettingsError

COLUMNS = [
    *("class", "tier", "weight", "provider", "model"),
    *("breaker", "attempts", "failures", "latency_ms", "running", "limit", "routes_version", "notes"),
]
MISTAKEN = 2

routes = command_group("routes")


@routes.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def check(invocation: Invocation, file: Path) -> None:
    """Report every mistake in a routes file, and exit with 2 if there is any; print its version. Works offline."""
    from services.router.routing.retention_promise import find_lapses, utc_today
    from services.router.routing.routes import load_routes

    mistakes, warnings, version = [], [], None
    try:
        loaded = load_routes(file)
        version, lapses = loaded.version, find_lapses(loaded.providers, utc_today())
        warnings = [f"{file}: providers.{lapse.provider}.until: {lapse}" for lapse in lapses]
    except SettingsError as error:
        mistakes = str(error).splitlines()
    checked = {"ok": not mistakes, "mistakes": mistakes, "warnings": warnings, "routes_version": version}
    verdict = mistakes or [f"The routes are valid. Their version is {version}."]
    invocation.say("\n".join([*verdict, *warnings]), checked)
    if mistakes:
        sys.exit(MISTAKEN)


@routes.command()
def reload(invocation: Invocation) -> None:
    """Reload the routes file on every router. Running chats go on; a file with a mistake changes nothing."""
    outcomes: list[dict[str, Any]] = []
    for router, stub in invocation.services.routers.items():
        targets, version, mistakes = None, None, []
        try:
            reloaded = call_service(stub.ReloadRoutes, ReloadRoutesRequest())
            targets, version = len(reloaded.targets), reloaded.version
        except CallRefused as error:
            mistakes = error.message.splitlines()
        outcomes.append(
            {
                "router": router,
                "reloaded": not mistakes,
                "targets": targets,
                "routes_version": version,
                "mistakes": mistakes,
            }
        )
    invocation.show_list(outcomes, ["router", "reloaded", "targets", "routes_version"])
    _fail_for([f"{outcome['router']}: {mistake}" for outcome in outcomes for mistake in outcome["mistakes"]])


@routes.command()
def show(invocation: Invocation) -> None:
    """List the models of each class by tier, with their weights, circuit breakers and figures."""
    routers = invocation.services.routers
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    for router, stub in routers.items():
        try:
            listed = call_service(stub.ListTargets, ListTargetsRequest())
            rows += (describe(router, target, listed.version) for target in listed.targets)
        except CallRefused as error:
            failures.append(f"{router}: {error.message}")
    invocation.show_list(rows, ["router", *COLUMNS] if len(routers) > 1 else COLUMNS)
    _fail_for(failures)


def _fail_for(failures: list[str]) -> None:
    """Raises for failures, after the results were shown."""
    if failures:
        raise CallRefused("\n".join(failures), Reason.REQUEST_INVALID)


def describe(router: str, target: Target, routes_version: str) -> dict[str, Any]:
    latency_ms = round(1000 * target.median_latency_s, 1) if target.HasField("median_latency_s") else None
    return {
        "router": router,
        **described(target, "class", "tier", "weight", "provider", "model"),
        "breaker": (value_of(target, "breaker_state") or "unknown").replace("_", "-"),
        **described(target, "attempts", "failures"),
        "latency_ms": latency_ms,
        **described(target, "running", "limit", "promise_until", "other_region"),
        "notes": _notes(target),
        "routes_version": routes_version,
    }


def _notes(target: Target) -> list[str]:
    """Returns what an operator has to look after."""
    from services.router.routing.retention_promise import WARNING_DAYS, utc_today

    notes = []
    if target.promise_until and (date.fromisoformat(target.promise_until) - utc_today()).days <= WARNING_DAYS:
        notes.append(f"zero retention is promised until {target.promise_until}")
    if target.other_region:
        notes.append(f"its certificate names {target.other_region}")
    return notes
