"""What commands read of the settings. What is given on the command line wins over all of them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from services.chassis.settings import SettingsError, load

SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Of every command; those that need more have settings of their own."""

    data: Path = Path(".legato")
    # Where the services are; without it, on the sockets of `data`.
    auth_address: str = ""
    metering_address: str = ""
    router_address: str = ""
    # What the command proves itself with on TCP, and whom it believes.
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def address(self, service: str) -> str:
        """Empty: in the folder, and then none is on another machine. Half of the services here and half of them
        elsewhere would book one's credit in the books of another."""
        given: str = getattr(self, f"{service}_address")
        if not given and self._is_elsewhere:
            raise SettingsWrong(f"LEGATO_{service.upper()}_ADDRESS: missing, though another service is on TCP")
        return given

    @property
    def _is_elsewhere(self) -> bool:
        addresses = f"{self.auth_address},{self.metering_address},{self.router_address}".split(",")
        return any(address.strip() and not address.strip().startswith("unix:") for address in addresses)


class SettingsWrong(click.ClickException):
    """Every mistake on a line of its own: the one message that may have several."""

    exit_code = 2


def read_settings(kind: type[SettingsT], environ: Mapping[str, str] = os.environ) -> SettingsT:
    try:
        return load(kind, environ)
    except SettingsError as error:
        raise SettingsWrong(str(error)) from None
