"""Certificates for tests, from an authority that is made for them."""

from datetime import datetime
from pathlib import Path

from cli.authority import issue, make_authority
from services.chassis.rpc.certificates import Certificates
from services.chassis.telemetry.log import Log

DAYS = 2


class Authority:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names: set[str] = set()
        make_authority(folder, DAYS)

    def issue(self, name: str, now: datetime | None = None) -> None:
        """Issues one in place of any that was there."""
        self._names.add(name)
        issue(self.folder, name, [], DAYS, now)

    def replace(self) -> None:
        """Makes another, with new certificates for all; at last those of the old are worth nothing."""
        believed = make_authority(self.folder, DAYS)
        for name in self._names:
            self.issue(name)
        end = b"-----END CERTIFICATE-----\n"
        newest = believed.read_bytes().partition(end)[0] + end
        beside = believed.with_name("ca.new")
        beside.write_bytes(newest)
        beside.replace(believed)

    def certificates(self, name: str, log: Log, believed: "Authority | None" = None) -> Certificates:
        certificate, key = self.files(name)
        return Certificates((believed or self).folder / "ca.pem", certificate, key, log)

    def files(self, name: str) -> tuple[Path, Path]:
        """Paths of the certificate, issued unless there is one, and its key."""
        certificate = self.folder / f"{name.replace('/', '-')}.pem"
        if not certificate.exists():
            self.issue(name)
        return certificate, certificate.with_suffix(".key")
