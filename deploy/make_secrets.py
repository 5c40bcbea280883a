"""Makes what the containers of the compose file prove themselves with, each into the folder of that container alone.

python deploy/make_secrets.py /secrets

Passwords, pepper and authority are made on the first start and kept. Certificates are issued anew on every start; the
processes that use them notice.
"""

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

from cli.authority import AUTHORITY, issue, make_authority

# Whom the service's image runs as.
OWNER = 10001
# The other images run as others; their folders are mounted into no container of ours.
READ_BY_OTHERS = ("grafana", "postgres", "valkey")

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
HOLDERS = ("edge", "auth", "router", "metering", "admin")

# Request rates, for minutes: nothing that must outlive a restart.
VALKEY_SETTINGS = """\
bind * -::*
protected-mode no
save ""
appendonly no
requirepass {password}
"""


def make_secrets(home: Path) -> None:
    database_password = _kept(home / "postgres" / "password", secrets.token_hex)
    valkey_password = _kept(home / "authority" / "valkey-password", secrets.token_hex)
    _kept(home / "auth" / "key-peppers", lambda: f"1:{secrets.token_hex(32)}")
    _kept(home / "router" / "grounding-key", lambda: f"1:{secrets.token_hex(32)}")
    _kept(home / "grafana" / "password", secrets.token_hex)
    for service in ("auth", "metering", "router"):
        _write(home / service / "database-url", f"postgresql://legato:{database_password}@postgres/legato")
    _write(home / "valkey" / "valkey.conf", VALKEY_SETTINGS.format(password=valkey_password))
    _write(home / "metering" / "valkey-url", f"redis://:{valkey_password}@valkey:6379/0")
    _issue_certificates(home)
    _hand_over(home)


def _issue_certificates(home: Path) -> None:
    authority = home / "authority"
    if not (authority / f"{AUTHORITY}.pem").exists():
        make_authority(authority, AUTHORITY_DAYS)
    for holder in HOLDERS:
        certificate = issue(authority, holder, [], CERTIFICATE_DAYS)
        _write(home / holder / "ca.pem", (authority / f"{AUTHORITY}.pem").read_text())
        _write(home / holder / "tls.key", certificate.with_suffix(".key").read_text())
        _write(home / holder / "tls.pem", certificate.read_text())


def _kept(path: Path, make: Callable[[], str]) -> str:
    if not path.exists():
        _write(path, make())
    return path.read_text()


def _write(path: Path, content: str) -> None:
    """All at once: whoever reads it finds the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(content)
    beside.chmod(0o444 if path.parent.name in READ_BY_OTHERS else 0o400)
    beside.replace(path)


def _hand_over(home: Path) -> None:
    """Only root can; whoever tries this out without a container keeps the files."""
    if os.geteuid() != 0:
        return
    for path in [*home.iterdir(), *home.glob("*/*")]:
        if path.name not in READ_BY_OTHERS and path.parent.name not in READ_BY_OTHERS:
            os.chown(path, OWNER, OWNER)


if __name__ == "__main__":
    # Beside what is made here nothing of this process is to be read by others.
    os.umask(0o022)
    make_secrets(Path(sys.argv[1]))
