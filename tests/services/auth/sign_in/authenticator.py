"""A passkey authenticator in software, which answers a browser's options as one in hardware would."""

import hashlib
import json
import secrets
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2.cose import ES256
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData, CollectedClientData

FLAG = AuthenticatorData.FLAG


class Authenticator:
    def __init__(self, origin: str, *, verifies_user: bool = True) -> None:
        self.origin = origin
        self.count = 1
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._credential_id = secrets.token_bytes(16)
        self._flags = FLAG.UP | (FLAG.UV if verifies_user else FLAG(0))

    def register(self, options_json: str) -> str:
        options = json.loads(options_json)
        public_key = ES256.from_cryptography_key(self._key.public_key())  # type: ignore[no-untyped-call]
        credential = AttestedCredentialData.create(bytes(16), self._credential_id, public_key)
        data = self._data(options["rp"]["id"], self._flags | FLAG.AT, credential)
        client_data = self._client_data(CollectedClientData.TYPE.CREATE, options["challenge"])
        attestation = AttestationObject.create("none", data, {})
        return self._answer({"clientDataJSON": client_data, "attestationObject": attestation})

    def sign_in(self, options_json: str) -> str:
        options = json.loads(options_json)
        self.count += 1
        data = self._data(options["rpId"], self._flags, b"")
        client_data = self._client_data(CollectedClientData.TYPE.GET, options["challenge"])
        signature = self._key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(hashes.SHA256()))
        return self._answer({"clientDataJSON": client_data, "authenticatorData": data, "signature": signature})

    def _data(self, rp_id: str, flags: Any, credential: bytes) -> AuthenticatorData:
        party = hashlib.sha256(rp_id.encode()).digest()
        return AuthenticatorData(AuthenticatorData.create(party, flags, self.count, credential))

    def _client_data(self, kind: Any, challenge: str) -> CollectedClientData:
        return CollectedClientData.create(kind, websafe_decode(challenge), self.origin)

    def _answer(self, response: dict[str, bytes]) -> str:
        coded = {name: websafe_encode(value) for name, value in response.items()}
        credential_id = websafe_encode(self._credential_id)
        answer = {"id": credential_id, "rawId": credential_id, "type": "public-key", "response": coded}
        return json.dumps({**answer, "clientExtensionResults": {}})
