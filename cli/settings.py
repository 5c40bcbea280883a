"""The settings that commands read. Options on the command line override them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from services.chassis.settings import SettingsError, load

SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of every command; some have further settings of their own."""

    data: Path = Path(".legato")
    # Addresses of the services; default: the sockets of `data`.
    auth_address: str = ""
    metering_address: str = ""
    router_address: str = ""
    payments_address: str = ""
    # Client certificate for services on TCP, and the authority that theirs must have.
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def address(self, service: str) -> str:
        """Returns an address; empty if the service is in the folder, and then none may be on another machine. With only
        half of them elsewhere, credit would be booked in another installation's ledger."""
        given: str = getattr(self, f"{service}_address")
        if not given and self._is_elsewhere:
            raise SettingsWrong(f"LEGATO_{service.upper()}_ADDRESS: missing, though another service is on TCP")
        return given

    @property
    def _is_elsewhere(self) -> bool:
        addresses = f"{self.auth_address},{self.metering_address},{self.router_address}".split(",")
        return any(address.strip() and not address.strip().startswith("unix:") for address in addresses)


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of commands that make links to the console."""

    # Empty: that of the console which `legato up` runs.
    console_url: str = ""


class SettingsWrong(click.ClickException):
    """Lists every mistake on its own line: the one message that may have several."""

    exit_code = 2


def read_settings(kind: type[SettingsT], environ: Mapping[str, str] = os.environ) -> SettingsT:
    try:
        return load(kind, environ)
    except SettingsError as error:
        raise SettingsWrong(str(error)) from None
