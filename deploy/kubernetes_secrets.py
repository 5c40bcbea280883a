"""Creates the Secrets that the manifests in `kubernetes/` mount, and prints them for `kubectl apply -f -`.

python -m deploy.kubernetes_secrets FOLDER             all
python -m deploy.kubernetes_secrets FOLDER NAME...     only these; tls-caller-NAME is the identity of a program

The folder keeps the files that they contain, readable only by its owner. With the same folder, passwords and keys stay
the same and certificates are issued again.
"""

import base64
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.authority import issue
from cli.commands.service.certs import CERTIFICATE_DAYS
from deploy.make_secrets import FOLDERS, HOLDERS, make_secrets

NAMESPACE = "legato"
# Programs have their Secret in a namespace of their own.
CALLER = "tls-caller-"

# Each Secret's entries, and the files that they come from.
SECRETS: dict[str, dict[str, str]] = {
    "database": {"url": "auth/database-url", "password": "postgres/password"},
    "valkey": {"url": "metering/valkey-url", "valkey.conf": "valkey/valkey.conf"},
    "key-peppers": {"peppers": "auth/key-peppers"},
    "grounding": {"key": "router/grounding-key"},
    "reasoning": {"key": "router/reasoning-key"},
    "credential-encryption-key": {"key": "auth/credential-encryption-key"},
    "access-token-signing-key": {"key": "auth/access-token-signing-key"},
    "access-token-public-keys": {"keys": "router/access-token-public-keys"},
    **{
        f"tls-{holder}": {
            "ca.crt": f"{holder}/ca.pem",
            "tls.crt": f"{holder}/tls.pem",
            "tls.key": f"{holder}/tls.key",
        }
        for holder in HOLDERS
    },
}


def secrets_in(folder: Path, names: Sequence[str] = tuple(SECRETS)) -> list[dict[str, Any]]:
    make_secrets(folder)
    for name in FOLDERS:
        # Earlier versions left some of them readable for all.
        (folder / name).chmod(0o700)
    return [_caller_secret(folder, name) if name.startswith(CALLER) else _secret(folder, name) for name in names]


def _secret(folder: Path, name: str) -> dict[str, Any]:
    return _rendered({"name": name, "namespace": NAMESPACE}, folder, SECRETS[name])


def _caller_secret(folder: Path, name: str) -> dict[str, Any]:
    authority, caller = folder / "authority", name.removeprefix(CALLER)
    certificate = issue(authority, f"caller/{caller}", [], CERTIFICATE_DAYS).name
    key = Path(certificate).with_suffix(".key").name
    return _rendered({"name": name}, authority, {"ca.crt": "ca.pem", "tls.crt": certificate, "tls.key": key})


def _rendered(metadata: dict[str, str], folder: Path, files: dict[str, str]) -> dict[str, Any]:
    data = {entry: base64.b64encode((folder / file).read_bytes()).decode() for entry, file in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    items = secrets_in(Path(folder), names or tuple(SECRETS))
    json.dump({"apiVersion": "v1", "kind": "List", "items": items}, sys.stdout, indent=1)
