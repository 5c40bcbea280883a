"""Registers and verifies passkeys (WebAuthn): discoverable, with user verification, without attestation.

The relying party is the host of the console's origin. Only the origins in LEGATO_CONSOLE_URL are accepted.
"""

import asyncio
import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from services.auth.core import codes
from services.auth.core.checks import refusal
from services.auth.core.records.users import User
from services.auth.core.store import Connection, add, get
from services.auth.core.times import hour_of
from services.auth.sign_in.records import Challenge, Passkey
from services.auth.sign_in.store import codes as stored_codes
from services.auth.sign_in.store import passkeys as stored
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

if TYPE_CHECKING:
    from fido2.server import Fido2Server

CHALLENGE_VALID_US: Final = 300_000_000
PASSKEYS_MOST: Final = 20
SITE_NAME: Final = "Legato"
CREDENTIAL_BYTES_MOST: Final = 20_000


class PasskeyRefused(Exception):
    """The browser's answer does not prove anything."""


class Passkeys:
    def __init__(self, origins: list[str]) -> None:
        self._origins = origins

    @staticmethod
    async def load() -> None:
        """Imports the library, at the first use and outside of any transaction."""
        await asyncio.to_thread(__import__, "fido2.server")

    def start_sign_in(self, connection: Connection, origin: str, now_us: int) -> tuple[str, str]:
        """Returns a challenge's id and the options for the browser, as JSON."""
        from fido2.webauthn import UserVerificationRequirement

        secret = secrets.token_bytes(32)
        options, _ = self._server(origin).authenticate_begin(
            None, UserVerificationRequirement.REQUIRED, challenge=secret
        )
        return self._keep(connection, None, secret, origin, now_us), json.dumps(dict(options)["publicKey"])

    def start_registration(self, connection: Connection, user: User, origin: str, now_us: int) -> tuple[str, str]:
        from fido2.webauthn import (
            PublicKeyCredentialDescriptor,
            PublicKeyCredentialType,
            PublicKeyCredentialUserEntity,
            ResidentKeyRequirement,
            UserVerificationRequirement,
        )

        secret = secrets.token_bytes(32)
        known = stored.list_passkeys(connection, user.user_id)
        if len(known) >= PASSKEYS_MOST:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("passkeys_most", most=PASSKEYS_MOST))
        options, _ = self._server(origin).register_begin(
            # Browsers show the name when there are several passkeys; the id is all that comes back.
            PublicKeyCredentialUserEntity(id=user.user_id.encode(), name=user.name, display_name=user.name),
            [
                PublicKeyCredentialDescriptor(type=PublicKeyCredentialType.PUBLIC_KEY, id=passkey.credential_id)
                for passkey in known
            ],
            ResidentKeyRequirement.REQUIRED,
            UserVerificationRequirement.REQUIRED,
            challenge=secret,
        )
        return self._keep(connection, user.user_id, secret, origin, now_us), json.dumps(dict(options)["publicKey"])

    def finish_registration(
        self, connection: Connection, user: User, challenge_id: str, credential_json: str, name: str, now_us: int
    ) -> Passkey:
        """Adds the passkey that the browser made; raises PasskeyRefused."""
        challenge = _use_challenge(connection, challenge_id, user.user_id, now_us)
        try:
            made = self._server(challenge.origin).register_complete(_state(challenge), _parse(credential_json))
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise PasskeyRefused from error
        credential = made.credential_data
        if credential is None or stored.find_by_credential(connection, credential.credential_id) is not None:
            raise PasskeyRefused
        passkey = Passkey(
            passkey_id=codes.mint_id("pass"),
            user_id=user.user_id,
            credential_id=credential.credential_id,
            credential=bytes(credential),
            sign_count=made.counter,
            rp_id=_host(challenge.origin),
            name=name,
            is_backed_up=made.is_backed_up(),
            created_at_us=now_us,
        )
        add(connection, passkey)
        return passkey

    def verify(self, connection: Connection, challenge_id: str, credential_json: str, now_us: int) -> Passkey:
        """Returns the passkey that signed a challenge of a sign-in; raises PasskeyRefused."""
        from fido2.webauthn import AttestedCredentialData, AuthenticationResponse

        challenge = _use_challenge(connection, challenge_id, None, now_us)
        try:
            answer = AuthenticationResponse.from_dict(_parse(credential_json))
            known = stored.find_by_credential(connection, answer.raw_id)
            if known is None:
                raise PasskeyRefused
            get(connection, User, known.user_id, locks=True)
            passkey = stored.find_by_credential(connection, answer.raw_id, locks=True)
            if passkey is None:
                raise PasskeyRefused
            self._server(challenge.origin).authenticate_complete(
                _state(challenge), [AttestedCredentialData(passkey.credential)], answer
            )
        except (ValueError, KeyError, TypeError) as error:
            raise PasskeyRefused from error
        data = answer.response.authenticator_data
        if data.counter <= passkey.sign_count and (data.counter or passkey.sign_count):
            # Another authenticator has used a copy of it.
            raise PasskeyRefused
        hour_us = hour_of(now_us)
        stored.record_use(connection, passkey.passkey_id, data.counter, hour_us, is_backed_up=data.is_backed_up())
        return replace(passkey, sign_count=data.counter)

    def _keep(self, connection: Connection, user_id: str | None, secret: bytes, origin: str, now_us: int) -> str:
        challenge = Challenge(codes.mint_id("chal"), user_id, secret, origin, now_us + CHALLENGE_VALID_US)
        stored_codes.add_challenge(connection, challenge, now_us)
        return challenge.challenge_id

    def _server(self, origin: str) -> "Fido2Server":
        from fido2.server import Fido2Server
        from fido2.webauthn import AttestationConveyancePreference, PublicKeyCredentialRpEntity

        if origin not in self._origins:
            raise refusal("origin", Sentence("origin_unknown"))
        party = PublicKeyCredentialRpEntity(id=_host(origin), name=SITE_NAME)
        return Fido2Server(party, AttestationConveyancePreference.NONE, verify_origin=lambda given: given == origin)


def _host(origin: str) -> str:
    return urlsplit(origin).hostname or ""


def _use_challenge(connection: Connection, challenge_id: str, user_id: str | None, now_us: int) -> Challenge:
    """Returns a challenge of the user, or of a sign-in if that is None, for the first who asks; that of another user
    stays as it is."""
    found = stored_codes.find_challenge(connection, challenge_id, now_us)
    if found is None or found.user_id != user_id:
        raise PasskeyRefused
    used = stored_codes.use_challenge(connection, challenge_id, now_us)
    if used is None:
        raise PasskeyRefused
    return used


def _state(challenge: Challenge) -> dict[str, str]:
    from fido2.utils import websafe_encode

    return {"challenge": websafe_encode(challenge.challenge), "user_verification": "required"}


def _parse(credential_json: str) -> dict[str, object]:
    if len(credential_json) > CREDENTIAL_BYTES_MOST:
        raise PasskeyRefused
    parsed = json.loads(credential_json)
    if not isinstance(parsed, dict):
        raise PasskeyRefused
    return parsed
