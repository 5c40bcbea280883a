"""Auth's settings, each read from `LEGATO_` and its name in capitals."""

from functools import partial
from pathlib import Path

import msgspec

from services.auth.keys import parse_peppers
from services.chassis.residency import DataStore, keep_in_canada
from services.chassis.settings import HostAndPort, PostgresAddress, SecondsOrZero, check_all


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    key_peppers: str
    data: Path = Path(".legato")
    # The regions of the folder and the database, which must be in Canada.
    data_region: str = ""
    database_url: PostgresAddress = ""
    database_region: str = ""
    # Off if `legato migrate` does it before a new version's services start.
    migrate_at_start: bool = True
    auth_listen: str = ""
    # Address of health checks, for clients without a certificate.
    auth_health_listen: str = ""
    # Address of the metrics for Prometheus, over HTTP; empty: not served.
    auth_metrics_listen: HostAndPort = ""
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure_tcp: bool = False
    # How long a process still accepts calls during shutdown, until clients send it no more.
    drain_delay_s: SecondsOrZero = 0.0
    debug: bool = False

    @property
    def stores(self) -> list[DataStore]:
        return [DataStore("DATA", self.data_region), DataStore("DATABASE", self.database_region, self.database_url)]

    def check(self) -> None:
        check_all(partial(keep_in_canada, self.stores), partial(parse_peppers, self.key_peppers))
