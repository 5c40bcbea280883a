"""What can be set, each by `LEGATO_` and its name in capitals."""

from functools import partial
from pathlib import Path

import msgspec

from services.auth.keys import parse_peppers
from services.chassis.residency import DataStore, keep_in_canada
from services.chassis.settings import HostAndPort, PostgresAddress, SecondsOrZero, check_all


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    key_peppers: str
    data: Path = Path(".legato")
    # Where the folder and the database lie; what they hold may not lie outside Canada.
    data_region: str = ""
    database_url: PostgresAddress = ""
    database_region: str = ""
    # Off where `legato migrate` does it, before services of a new version start.
    migrate_at_start: bool = True
    auth_listen: str = ""
    # Where health alone is told, to those without a certificate.
    auth_health_listen: str = ""
    # Where metrics are served to Prometheus over HTTP; without it they are not.
    auth_metrics_listen: HostAndPort = ""
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure_tcp: bool = False
    # How long a process that is asked to end takes new calls all the same, until nobody sends it any.
    drain_delay_s: SecondsOrZero = 0.0
    debug: bool = False

    @property
    def stores(self) -> list[DataStore]:
        return [DataStore("DATA", self.data_region), DataStore("DATABASE", self.database_region, self.database_url)]

    def check(self) -> None:
        check_all(partial(keep_in_canada, self.stores), partial(parse_peppers, self.key_peppers))
