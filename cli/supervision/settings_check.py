"""Finds all mistakes in the settings of the processes before any of them is started."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from cli.settings import CommandSettings
from cli.supervision.environment import SECRETS, settings_by_process, variables_of
from services.chassis.access_tokens import SIGNING_KEY_VARIABLE
from services.chassis.process import failpoints, lifeline, pulse
from services.chassis.settings import PREFIX, SETTINGS_VARIABLE, SettingsError, load, read_settings_file

# A placeholder for a secret that is generated when the processes are started.
MADE_LATER = "1:" + "00" * 32
# Set by the supervisor, whatever the environment says.
DECIDED_LATER = ("LEGATO_EDGE_FD", "LEGATO_EDGE_RPC_FD", "LEGATO_CONSOLE_FD")
# Internal variables.
OUR_OWN = (SETTINGS_VARIABLE, failpoints.VARIABLE, lifeline.VARIABLE, pulse.VARIABLE)


def kinds_of_settings() -> tuple[type[msgspec.Struct], ...]:
    """Returns the settings types of processes and commands."""
    return (CommandSettings, *(kind for kinds in settings_by_process().values() for kind in kinds))


def mistakes_in_settings(own: type[msgspec.Struct], environ: Mapping[str, str] = os.environ) -> Iterable[str]:
    """Returns each mistake once. `own` are the supervisor's settings."""
    try:
        in_file = read_settings_file(environ)
    except SettingsError as error:
        return [str(error)]
    given = {name: value for name, value in environ.items() if name not in DECIDED_LATER}
    # Without a signing key users cannot sign in, but everything else works.
    for secret in set(SECRETS) - {SIGNING_KEY_VARIABLE}:
        if not (environ.get(secret) or environ.get(f"{secret}_FILE") or in_file.get(_field(secret))):
            given[secret] = MADE_LATER
    mistakes: dict[str, None] = {}
    for kind in (own, *kinds_of_settings()):
        try:
            load(kind, given)
        except SettingsError as error:
            mistakes |= dict.fromkeys(str(error).splitlines())
    return mistakes


def strange_names(own: type[msgspec.Struct], routes: Path, environ: Mapping[str, str] = os.environ) -> Iterable[str]:
    """Warns of unknown names, since a mistyped setting would silently have its default. They are not errors: operators
    have their own variables with our prefix, `routes` may name some, and a later version has more."""
    known = variables_of(own, *kinds_of_settings())
    strange = [name for name in environ if name.startswith(PREFIX) and name not in OUR_OWN]
    strange = [name for name in strange if not {name, name.removesuffix("_FILE")} & known]
    if strange:
        named_by_routes = routes.read_text(errors="replace") if routes.is_file() else ""
        strange = [name for name in strange if name.removesuffix("_FILE") not in named_by_routes]
    yield from (f"{name} is not a setting{_near(name, known)}" for name in strange)
    for key in read_settings_file(environ):
        if PREFIX + key.upper() not in known:
            yield f"{SETTINGS_VARIABLE}: {key} is not a setting{_near(key, map(_field, known))}"


def _field(variable: str) -> str:
    return variable.removeprefix(PREFIX).lower()


def _near(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    [near] = get_close_matches(name, list(known), 1) or [""]
    return f": did you mean {near}?" if near else ""


def mistakes_in_files(routes: Path, prices: Path) -> Iterable[str]:
    from services.metering.credit.prices import read_prices
    from services.router.routes.routes import load_routes

    for read, path in ((load_routes, routes), (read_prices, prices)):
        try:
            read(path)
        except SettingsError as error:
            yield from str(error).splitlines()
