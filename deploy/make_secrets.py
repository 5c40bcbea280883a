"""Creates the passwords, keys and certificates of the compose file's containers, in one folder for each container.

python deploy/make_secrets.py /secrets

Passwords, pepper and certificate authority are created on the first start and kept. Certificates are issued on every
start; running processes reload them. Files are created with access for the current user only; root then passes them to
the users of the containers.
"""

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

from cli.authority import AUTHORITY, issue, make_authority
from cli.commands.service.certs import AUTHORITY_DAYS, CERTIFICATE_DAYS
from services.chassis.access_tokens import AccessTokenSigner

# The user id of the service's image.
OWNER = 10001
# The other images run as other users, so these files become readable for all: each is in a volume that no other
# container mounts, and that only root can access on the host.
READ_BY_OTHERS = ("grafana", "postgres", "valkey")

HOLDERS = ("edge", "auth", "router", "metering", "payments", "console", "operator-console", "admin")
FOLDERS = (*HOLDERS, "backup", *READ_BY_OTHERS, "authority")

# Valkey holds rate limits of a few minutes and shares of models' limits, which need not survive a restart.
VALKEY_SETTINGS = """\
bind * -::*
protected-mode no
save ""
appendonly no
requirepass {password}
"""


def make_secrets(home: Path) -> None:
    """Creates the files, readable only by the current user."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in FOLDERS:
        (home / folder).mkdir(mode=0o700, exist_ok=True)
    database_password = _kept(home / "postgres" / "password", secrets.token_hex)
    valkey_password = _kept(home / "authority" / "valkey-password", secrets.token_hex)
    _kept(home / "auth" / "key-peppers", lambda: f"1:{secrets.token_hex(32)}")
    _kept(home / "router" / "grounding-key", lambda: f"1:{secrets.token_hex(32)}")
    _kept(home / "router" / "reasoning-key", lambda: f"1:{secrets.token_hex(32)}")
    _kept(home / "auth" / "credential-encryption-key", lambda: f"1:{secrets.token_hex(32)}")
    _make_access_token_keys(home)
    _kept(home / "grafana" / "password", secrets.token_hex)
    for holder in ("auth", "backup", "metering", "router"):
        _write(home / holder / "database-url", f"postgresql://legato:{database_password}@postgres/legato")
    _write(home / "valkey" / "valkey.conf", VALKEY_SETTINGS.format(password=valkey_password))
    _write(home / "metering" / "valkey-url", f"redis://:{valkey_password}@valkey:6379/0")
    _issue_certificates(home)


def _make_access_token_keys(home: Path) -> None:
    """Auth alone can sign access tokens; those that check them have the public key."""
    signing_key = _kept(home / "auth" / "access-token-signing-key", lambda: secrets.token_hex(32))
    for service in ("auth", "metering", "payments", "router"):
        _write(home / service / "access-token-public-keys", AccessTokenSigner(signing_key).public_key())


def hand_over(home: Path) -> None:
    """Makes the files readable for the users of the containers. Only root can do this."""
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
    """Writes the file atomically: a reader gets the old content or the new."""
    if path.exists() and path.read_text() == content:
        # A container may be using it: its owner and mode are kept.
        return
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as file:
        file.write(content)
    beside.replace(path)


if __name__ == "__main__":
    # No file is readable for others before `hand_over`.
    os.umask(0o077)
    home = Path(sys.argv[1])
    make_secrets(home)
    # Without root, for instance outside of a container, the files stay with the current user.
    if os.geteuid() == 0:
        hand_over(home)
