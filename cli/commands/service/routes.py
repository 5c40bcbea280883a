"""`legato routes`."""

import sys
import time
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import TypedDict, TypeVar

import click

from cli.command import HelpLine, Invocation, command_group
from cli.connection import CallRefused, call_service
from cli.descriptions import described, value_of
from cli.output import show_table
from legato_protos.router.v1.router_pb2 import (
    DiffRoutesRequest,
    ListOutcomesRequest,
    ListTargetsRequest,
    ReloadRoutesRequest,
    ResumeCanaryRequest,
    Target,
)
from legato_protos.router.v1.router_pb2_grpc import RouteAdminServiceStub
from services.chassis.errors import Reason
from services.chassis.settings import SettingsError
from services.chassis.small_file import read_small_file
from services.rules.model_classes import CLASSES
from services.rules.model_comparison import OutcomeSum, compare, sum_outcomes
from services.rules.staged_files import StagedFile, find_obstacles

COLUMNS = [
    *("class", "tier", "weight", "provider", "model"),
    *(
        "canary",
        "breaker",
        "attempts",
        "failures",
        "recent_calls",
        "recent_failures",
        "latency_ms",
        "running",
        "limit",
        "share",
        "routes_version",
        "notes",
    ),
]
MISTAKEN = 2
LOOK_EVERY_S = 1.0
NOTHING_CHANGES = "nothing changes"
FILE_WITH_MISTAKES = "mistaken"
_Found = TypeVar("_Found")


class _ReloadOutcome(TypedDict):
    router: str
    reloaded: bool
    targets: int | None
    routes_version: str | None
    file_version: str | None
    mistakes: list[str]


class _RouterDiff(TypedDict):
    router: str
    mistakes: list[str]
    changes: list[str]


HELP = HelpLine(170, "Check and reload the routes, and show the state of their models.")
routes = command_group("routes", HELP.text)


@routes.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--without-keys", is_flag=True, help="Do not look for API keys, as on a machine that has none.")
def check(invocation: Invocation, file: Path, without_keys: bool) -> None:
    """Report every mistake in a routes file, and exit with 2 if there is any; print its version. Works offline."""
    from services.router.routes.retention_promise import find_lapses, utc_today
    from services.router.routes.routes import load_routes

    mistakes, warnings, version, credentials = [], [], None, {}
    try:
        loaded = load_routes(file, has_keys=not without_keys)
        version, lapses = loaded.version, find_lapses(loaded.providers, utc_today())
        warnings = [f"{file}: providers.{lapse.provider}.until: {lapse}" for lapse in lapses]
        providers = sorted(loaded.providers.items())
        credentials = {name: str(route.credentials) for name, route in providers if route.credentials is not None}
    except SettingsError as error:
        mistakes = str(error).splitlines()
    checked = {
        "ok": not mistakes,
        "mistakes": mistakes,
        "warnings": warnings,
        "routes_version": version,
        "credentials": credentials,
    }
    if mistakes:
        if invocation.json:
            invocation.show(checked)
        else:
            click.echo("\n".join(mistakes), err=True)
        sys.exit(MISTAKEN)
    used = [f"Provider {name} has the credentials {described}." for name, described in credentials.items()]
    invocation.report("\n".join([f"The routes are valid. Their version is {version}.", *used, *warnings]), checked)


@routes.command()
@click.option(
    "--wait", "wait_s", type=click.FloatRange(min=0), default=0, metavar="S", help="Wait until all see the same file."
)
def reload(invocation: Invocation, wait_s: float) -> None:
    """Reload the routes file on every router, or on none: all must have the same version of it. Running chats go on."""
    give_up_at_s = time.monotonic() + wait_s
    routers = invocation.services.routers
    while obstacles := find_obstacles(staged := {router: _read_file(stub) for router, stub in routers.items()}):
        if time.monotonic() >= give_up_at_s:
            break
        time.sleep(LOOK_EVERY_S)
    outcomes: list[_ReloadOutcome] = []
    for router, stub in routers.items():
        targets, version, mistakes = None, None, list(staged[router].mistakes)
        try:
            if not obstacles:
                reloaded = call_service(stub.ReloadRoutes, ReloadRoutesRequest(version=staged[router].version))
                targets, version = len(reloaded.targets), reloaded.version
        except CallRefused as error:
            mistakes = error.message.splitlines()
        outcomes.append(
            {
                "router": router,
                "reloaded": version is not None,
                "targets": targets,
                "routes_version": version,
                "file_version": staged[router].version or None,
                "mistakes": mistakes,
            }
        )
    invocation.show_list(outcomes, ["router", "reloaded", "targets", "routes_version", "file_version"])
    refusals = [f"{outcome['router']}: {mistake}" for outcome in outcomes for mistake in outcome["mistakes"]]
    _fail_for([*obstacles, "Nothing was reloaded."] if obstacles else refusals)


@routes.command()
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
def diff(invocation: Invocation, file: Path) -> None:
    """Show what a routes file would change on each router, without changing anything."""
    try:
        request = DiffRoutesRequest(text=read_small_file(file))
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{file} must be UTF-8 text.") from None

    def ask(router: str, stub: RouteAdminServiceStub) -> list[_RouterDiff]:
        answer = call_service(stub.DiffRoutes, request)
        return [{"router": router, "mistakes": list(answer.mistakes), "changes": list(answer.changes)}]

    found, failures = _ask_each(invocation, ask)
    if invocation.json:
        invocation.show({"routers": found})
    for each in [] if invocation.json else found:
        for mistake in each["mistakes"]:
            click.echo(f"{each['router']}: {file}: {mistake}", err=True)
        if not each["mistakes"]:
            click.echo("\n".join([each["router"], *(each["changes"] or [NOTHING_CHANGES])]))
    _fail_for(failures)
    if any(each["mistakes"] for each in found):
        sys.exit(MISTAKEN)


def _read_file(stub: RouteAdminServiceStub) -> StagedFile:
    """Asks a router for the version that it would take over."""
    try:
        listed = call_service(stub.ListTargets, ListTargetsRequest(compares_file=True))
    except CallRefused as error:
        return StagedFile(mistakes=(error.message,))
    if not listed.file_version and not listed.file_mistakes:
        return StagedFile(mistakes=("it is of a release that does not tell the version of its file",))
    return StagedFile(listed.file_version, tuple(listed.file_mistakes))


@routes.command()
def show(invocation: Invocation) -> None:
    """List the models of each class by tier, with their weights, circuit breakers and figures, and the version of the
    routes on each router; of the file, too, where that differs."""

    def ask(router: str, stub: RouteAdminServiceStub) -> list[dict[str, object]]:
        listed = call_service(stub.ListTargets, ListTargetsRequest(compares_file=True))
        file_version = listed.file_version or (FILE_WITH_MISTAKES if listed.file_mistakes else listed.version)
        rows = [describe(router, target, listed.version) for target in listed.targets]
        return [{**row, "file_version": file_version} for row in rows]

    rows, failures = _ask_each(invocation, ask)
    columns = ["router", *COLUMNS] if len(invocation.services.routers) > 1 else [*COLUMNS]
    if any(row["file_version"] != row["routes_version"] for row in rows):
        columns.insert(columns.index("routes_version") + 1, "file_version")
    invocation.show_list(rows, columns)
    _fail_for(failures)


@routes.command("compare")
@click.argument("first")
@click.argument("second")
@click.option("--class", "class_id", type=click.Choice(CLASSES), help="Only of this class.")
def compare_models(invocation: Invocation, first: str, second: str, class_id: str | None) -> None:
    """Compare two models by what the calls to them came to, summed over all routers.

    A model is named as its provider calls it, or as PROVIDER/MODEL."""
    found, failures = _ask_each(
        invocation, lambda router, stub: call_service(stub.ListOutcomes, ListOutcomesRequest()).outcomes
    )
    if not found:
        _fail_for(failures)
    outcomes = [each for each in found if class_id in (None, each.class_id)]
    sums = [sum_outcomes(name, outcomes) for name in (first, second)]
    for each in sums:
        if not each.calls:
            called = ", ".join(sorted({f"{other.provider}/{other.model_name}" for other in outcomes})) or "none"
            raise CallRefused(f"There were no calls to {each.name}. Models with calls: {called}.", Reason.NOT_FOUND)
    described_sums, verdict = [_describe_sum(each) for each in sums], str(compare(*sums))
    if invocation.json:
        invocation.show({"models": described_sums, "verdict": verdict})
    else:
        names = [name for name in described_sums[0] if name != "model"]
        show_table(["", first, second], [[name, *(_cell(each[name]) for each in described_sums)] for name in names])
        click.echo(verdict)
    _fail_for(failures)


@routes.command()
@click.argument("class_id", metavar="CLASS", type=click.Choice(CLASSES))
def resume(invocation: Invocation, class_id: str) -> None:
    """Send accounts to a canary again that was rolled back, on every router."""

    def ask(router: str, stub: RouteAdminServiceStub) -> list[dict[str, object]]:
        call_service(stub.ResumeCanary, ResumeCanaryRequest(class_id=class_id))
        return [{"router": router, "class": class_id, "resumed": True}]

    rows, failures = _ask_each(invocation, ask)
    invocation.show_list(rows, ["router", "class", "resumed"])
    _fail_for(failures)


def _ask_each(
    invocation: Invocation, ask: Callable[[str, RouteAdminServiceStub], Iterable[_Found]]
) -> tuple[list[_Found], list[str]]:
    """Returns what all routers tell, and why some do not."""
    found: list[_Found] = []
    failures = []
    for router, stub in invocation.services.routers.items():
        try:
            found += ask(router, stub)
        except CallRefused as error:
            failures.append(f"{router}: {error.message}")
    return found, failures


def _describe_sum(outcomes: OutcomeSum) -> dict[str, object]:
    return {
        "model": outcomes.name,
        "calls": outcomes.calls,
        "failures": outcomes.failures,
        "failed_percent": _percent(outcomes.failure_share),
        "errors": dict(outcomes.errors),
        "first_token_median_ms": _milliseconds(outcomes.first_token_at_s(0.5)),
        "first_token_p95_ms": _milliseconds(outcomes.first_token_at_s(0.95)),
        "prompt_tokens": outcomes.prompt_tokens,
        "completion_tokens": outcomes.completion_tokens,
        "finish_reasons": dict(outcomes.finish_reasons),
        "tool_calls": outcomes.tool_calls,
        "valid_tool_calls_percent": _percent(outcomes.valid_call_share),
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)


def _milliseconds(duration_s: float | None) -> float | None:
    return None if duration_s is None else round(1000 * duration_s, 1)


def _cell(value: object) -> object:
    """Returns a value as it stands in a table; a count by name is a list of both."""
    if not isinstance(value, dict):
        return value
    return ", ".join(f"{name} {count}" for name, count in sorted(value.items())) or None


def _canary(target: Target) -> str | None:
    if not target.HasField("canary"):
        return None
    return "rolled back" if target.canary.is_rolled_back else f"{target.canary.percent:g} %"


def _fail_for(failures: list[str]) -> None:
    """Raises for failures, after the results were shown."""
    if failures:
        raise CallRefused("\n".join(failures), Reason.REQUEST_INVALID)


def describe(router: str, target: Target, routes_version: str) -> dict[str, object]:
    latency_ms = _milliseconds(target.median_latency_s if target.HasField("median_latency_s") else None)
    return {
        "router": router,
        **described(target, "class", "tier", "weight", "provider", "model"),
        "canary": _canary(target),
        "breaker": (value_of(target, "breaker_state") or "unknown").replace("_", "-"),
        **described(target, "attempts", "failures", "recent_calls", "recent_failures"),
        "latency_ms": latency_ms,
        **described(target, "running", "limit", "share", "promise_until", "other_region", "cuts_prompts_from_tokens"),
        **described(target, "credentials", "credentials_failure"),
        "learned": list(target.learned),
        "notes": _notes(target),
        "routes_version": routes_version,
    }


def _notes(target: Target) -> list[str]:
    """Returns what an operator has to look after."""
    from services.router.routes.retention_promise import WARNING_DAYS, utc_today

    notes = []
    if target.promise_until and (date.fromisoformat(target.promise_until) - utc_today()).days <= WARNING_DAYS:
        notes.append(f"zero retention is promised until {target.promise_until}")
    if target.other_region:
        notes.append(f"its certificate names {target.other_region}")
    if target.credentials_failure:
        notes.append(f"credentials: {target.credentials_failure}")
    if target.learned:
        notes.append(f"refusals told: {', '.join(target.learned)}")
    if target.HasField("cuts_prompts_from_tokens"):
        notes.append(f"cuts prompts from {target.cuts_prompts_from_tokens} tokens on")
    return notes
