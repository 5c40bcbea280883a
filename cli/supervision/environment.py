"""The environment of each process: the settings that it knows, its own secrets, and no others.

Only the router calls providers, whose keys may have any name, so only the router gets variables that are not known to
be harmless.
"""

import os
from collections.abc import Collection, Mapping

import msgspec

from services.chassis.access_tokens import SIGNING_KEY_VARIABLE
from services.chassis.process import failpoints
from services.chassis.settings import PREFIX, SETTINGS_VARIABLE

LOCAL_MODEL = "local-model"
PAYMENTS = "payments"
PEPPERS_VARIABLE = "LEGATO_KEY_PEPPERS"
GROUNDING_KEY_VARIABLE = "LEGATO_GROUNDING_KEY"
REASONING_KEY_VARIABLE = "LEGATO_REASONING_KEY"
CREDENTIAL_KEY_VARIABLE = "LEGATO_CREDENTIAL_ENCRYPTION_KEY"
# Decided by the supervisor for each process.
SECRETS = (
    PEPPERS_VARIABLE,
    GROUNDING_KEY_VARIABLE,
    REASONING_KEY_VARIABLE,
    SIGNING_KEY_VARIABLE,
    CREDENTIAL_KEY_VARIABLE,
)
# Of auth, payments and metering alone, which know them; so they are not for the router.
SECRETS_OF_OTHERS = (
    "LEGATO_OIDC_CLIENT_SECRET",
    "LEGATO_SMTP_URL",
    "LEGATO_STRIPE_SECRET_KEY",
    "LEGATO_STRIPE_WEBHOOK_SECRET",
    "LEGATO_VALKEY_URL",
)
# Variables of Python, gRPC, the C library, TLS and database drivers.
HARMLESS = frozenset(
    {"HOME", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
)
HARMLESS_PREFIXES = (
    "COVERAGE_", "COV_CORE_", "GGML_", "GLIBC_", "GRPC_", "LC_", "LD_", "MALLOC_", "OMP_", "OPENSSL_", "PYTHON",
    "SSL_CERT_", "VIRTUAL_ENV", "XDG_",
)  # fmt: skip
# The driver's own settings, with passwords: only for services that have a database.
DATABASE_PREFIX = "PG"
WITH_DATABASE = ("auth", "metering", "router")
# gRPC's event engine passes every message between threads. gRPC reads this when it is loaded, so no process can set
# it for itself; the image sets the same.
GRPC_WITHOUT_EVENT_ENGINE = {"GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener"}


def settings_by_process() -> dict[str, tuple[type[msgspec.Struct], ...]]:
    """Returns the settings types of each process."""
    # Imported here, since `legato --help` does not need them.
    from console.settings import ConsoleServerSettings
    from edge.settings import EdgeSettings
    from services.auth.settings import AuthSettings
    from services.metering.settings import MeteringSettings
    from services.payments.settings import PaymentsSettings
    from services.router.grounding.settings import GroundingSettings
    from services.router.local_model import LocalModelSettings
    from services.router.settings import RouterSettings

    return {
        "auth": (AuthSettings,),
        "metering": (MeteringSettings,),
        "router": (RouterSettings, GroundingSettings),
        "edge": (EdgeSettings,),
        "console": (ConsoleServerSettings,),
        PAYMENTS: (PaymentsSettings,),
        LOCAL_MODEL: (LocalModelSettings,),
    }


def environment_of(process: str, decided: Mapping[str, str]) -> dict[str, str]:
    """Returns a process's environment: what was decided for it, and what it may see of ours."""
    # Also excludes their `_FILE` forms, such as `LEGATO_DATA_FILE`.
    unwanted = {*decided, *SECRETS}
    known = variables_of(*settings_by_process()[process]) | {SETTINGS_VARIABLE, failpoints.VARIABLE}
    handed_on = {
        name: value
        for name, value in os.environ.items()
        if name.removesuffix("_FILE") not in unwanted and _is_for(process, name, known)
    }
    return {**GRPC_WITHOUT_EVENT_ENGINE, **handed_on, **decided}


def variables_of(*kinds: type[msgspec.Struct]) -> set[str]:
    return {PREFIX + field.name.upper() for kind in kinds for field in msgspec.structs.fields(kind)}


def _is_for(process: str, name: str, known: Collection[str]) -> bool:
    if process == "router":
        # It also needs what the routes file names, today's and the next one's.
        return name.removesuffix("_FILE") not in SECRETS_OF_OTHERS
    if name.startswith(DATABASE_PREFIX) and process in WITH_DATABASE:
        return True
    return name in HARMLESS or name.startswith(HARMLESS_PREFIXES) or name.removesuffix("_FILE") in known
