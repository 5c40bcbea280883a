"""Makes what the containers of the compose file prove themselves with, each into the folder of that container alone.

python deploy/make_secrets.py /secrets

Passwords, pepper and authority are made on the first start and kept. Certificates are issued anew on every start; the
processes that use them notice. All is made for its maker's eyes alone; root hands it over to those whom the containers
run as.
"""

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

from cli.authority import AUTHORITY, issue, make_authority
from cli.commands.certs import AUTHORITY_DAYS, CERTIFICATE_DAYS
from services.chassis.access_tokens import AccessTokenSigner

# Whom the service's image runs as.
OWNER = 10001
# The other images run as others, so all may read these, once they are handed over: each is in a volume that no other
# container mounts, and that only root reaches on the machine itself.
READ_BY_OTHERS = ("grafana", "postgres", "valkey")

HOLDERS = ("edge", "auth", "router", "metering", "console", "admin")
FOLDERS = (*HOLDERS, *READ_BY_OTHERS, "authority")

# Request rates, for minutes: nothing that must outlive a restart.
VALKEY_SETTINGS = """\
bind * -::*
protected-mode no
save ""
appendonly no
requirepass {password}
"""


def make_secrets(home: Path) -> None:
    """Nobody but whoever runs this can read them."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in FOLDERS:
        (home / folder).mkdir(mode=0o700, exist_ok=True)
    database_password = _kept(home / "postgres" / "password", secrets.token_hex)
    valkey_password = _kept(home / "authority" / "valkey-password", secrets.token_hex)
    _kept(home / "auth" / "key-peppers", lambda: f"1:{secrets.token_hex(32)}")
    _kept(home / "router" / "grounding-key", lambda: f"1:{secrets.token_hex(32)}")
    _make_access_token_keys(home)
    _kept(home / "grafana" / "password", secrets.token_hex)
    for service in ("auth", "metering", "router"):
        _write(home / service / "database-url", f"postgresql://legato:{database_password}@postgres/legato")
    _write(home / "valkey" / "valkey.conf", VALKEY_SETTINGS.format(password=valkey_password))
    _write(home / "metering" / "valkey-url", f"redis://:{valkey_password}@valkey:6379/0")
    _issue_certificates(home)


def _make_access_token_keys(home: Path) -> None:
    """Auth alone can sign access tokens; those that check them have the public key."""
    signing_key = _kept(home / "auth" / "access-token-signing-key", lambda: secrets.token_hex(32))
    for service in ("auth", "metering", "router"):
        _write(home / service / "access-token-public-keys", AccessTokenSigner(signing_key).public_key())


def hand_over(home: Path) -> None:
    """Lets the containers' user read them; only root can."""
    for folder in FOLDERS:
        for path in (home / folder, *(home / folder).iterdir()):
            if folder in READ_BY_OTHERS:
                path.chmod(0o755 if path.is_dir() else 0o444)
            else:
                os.chown(path, OWNER, OWNER)


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
    if path.exists() and path.read_text() == content:
        # It was handed over already, to somebody who may be reading it.
        return
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as file:
        file.write(content)
    beside.replace(path)


if __name__ == "__main__":
    # Nothing is open to others that is not handed over.
    os.umask(0o077)
    home = Path(sys.argv[1])
    make_secrets(home)
    # Whoever tries this out without a container keeps the files.
    if os.geteuid() == 0:
        hand_over(home)
