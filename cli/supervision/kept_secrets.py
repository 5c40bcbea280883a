"""The secrets of an installation: those that are set, and otherwise those that are kept in its data folder.

A secret is generated when it is first needed. Without the peppers no key is known; without the grounding key notes and
documents cannot be read; without the credential key users' email addresses are unknown, and passwords no longer sign
in. With a new reasoning key, models have forgotten what they thought in the conversations that run. A new pair of keys
for access tokens ends no session: tokens are valid for a minute.
"""

import secrets
from pathlib import Path

from cli.supervision import completeness
from cli.supervision.data_folder import unusable, write_private
from cli.supervision.environment import (
    CREDENTIAL_KEY_VARIABLE,
    GROUNDING_KEY_VARIABLE,
    PEPPERS_VARIABLE,
    REASONING_KEY_VARIABLE,
)
from cli.supervision.settings import UpSettings
from services.chassis.access_tokens import PUBLIC_KEYS_VARIABLE, SIGNING_KEY_VARIABLE


def secrets_for(settings: UpSettings, data: Path) -> dict[str, str]:
    """Returns the secrets by the variables from which processes take them."""
    has_grounding = settings.memory or settings.attachments
    try:
        signing_key, public_keys = _access_token_keys(settings, data)
        return {
            PEPPERS_VARIABLE: settings.key_peppers or _key_peppers(settings, data),
            GROUNDING_KEY_VARIABLE: settings.grounding_key or (_kept(data / "grounding-key") if has_grounding else ""),
            REASONING_KEY_VARIABLE: settings.reasoning_key or _kept(data / "reasoning-key"),
            CREDENTIAL_KEY_VARIABLE: settings.credential_encryption_key or _kept(data / "credential-key"),
            SIGNING_KEY_VARIABLE: signing_key,
            PUBLIC_KEYS_VARIABLE: public_keys,
        }
    except OSError as error:
        raise unusable(data, error) from None


def _key_peppers(settings: UpSettings, data: Path) -> str:
    path = data / completeness.PEPPERS
    return _kept(path, 1 if path.exists() else completeness.next_pepper_version(data, settings.database_url))


def _access_token_keys(settings: UpSettings, data: Path) -> tuple[str, str]:
    """Returns the private key of users' access tokens and the public keys."""
    if settings.access_token_signing_key:
        from services.chassis.access_tokens import AccessTokenSigner

        own = AccessTokenSigner(settings.access_token_signing_key).public_key()
        return settings.access_token_signing_key, ",".join(filter(None, (own, settings.access_token_public_keys)))
    path = data / "access-token-key"
    if not path.exists():
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        write_private(path, f"{key.private_bytes_raw().hex()}\n{key.public_key().public_bytes_raw().hex()}\n")
    private, public = path.read_text().split()
    return private, public


def _kept(path: Path, version: int = 1) -> str:
    """Returns a secret as services take it, `1:HEX`."""
    if not path.exists():
        write_private(path, f"{version}:{secrets.token_hex(32)}\n")
    return path.read_text().strip()
