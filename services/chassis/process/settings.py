"""Settings that every process reads, and those that every gRPC service reads beside them."""

from pathlib import Path

import msgspec

from services.chassis.settings import ConsoleRole, SecondsOrZero


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    data: Path = Path(".legato")
    # The certificate for TCP between processes, and the authority that others must have theirs from.
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    # How long a process still accepts calls during shutdown, until clients and load balancers send it no more.
    drain_delay_s: SecondsOrZero = 0.0
    debug: bool = False


class ServiceSettings(ProcessSettings, frozen=True, kw_only=True):
    # Serves TCP without certificates.
    insecure_tcp: bool = False
    # Verify users' access tokens; empty: no console can do anything here.
    access_token_public_keys: str = ""
    # Whether the unix socket for a console is the operators'.
    console_role: ConsoleRole = "console"
