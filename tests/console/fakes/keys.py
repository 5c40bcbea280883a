"""The keys of the account, and what each of them has used."""

from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from protos.auth.v1 import auth_pb2
from protos.type.v1 import access_token_pb2
from services.chassis.access_tokens import Access, AccessTokenSigner, AccessTokenVerifier, AccountRole
from services.chassis.errors import LegatoError, Reason
from tests.console.clock import NOW_US, ago
from tests.console.metering import ACCOUNT_ID, Metering

SIGNER = AccessTokenSigner("7" * 64)
VERIFIER = AccessTokenVerifier("", SIGNER)
SECRET = "sk-legato-0123456789abcdefZYXWVUTSRQPONMLKJIHGFEDCBA9876543checks"


class KeyFakes:
    metering: Metering

    def reset_keys(self) -> None:
        self.is_fresh = True
        self.role = access_token_pb2.ACCOUNT_ROLE_OWNER
        self.keys: list[auth_pb2.Key] = []
        self.forms: dict[str, auth_pb2.Key] = {}

    def require_recent(self) -> None:
        if not self.is_fresh:
            raise LegatoError(Reason.STEP_UP_REQUIRED, "Confirm that it is you, then repeat this.")

    def sign_access(self, *, account_id: str, is_operator: bool = False, **keys: str) -> bytes:
        """Signs an access token of the visitor, as auth does."""
        proved_us = NOW_US if self.is_fresh else NOW_US - 3_600_000_000
        role, expires_us = AccountRole(self.role), NOW_US + 60_000_000
        return SIGNER.sign(Access("user_1", "sess_1", account_id, role, is_operator, proved_us, expires_us, **keys))

    def add_key(self, name: str, **values: Any) -> auth_pb2.Key:
        number = len(self.keys) + 1
        made = auth_pb2.Key(
            key_id=f"key_{number:016d}",
            account_id=ACCOUNT_ID,
            name=name,
            create_time=values.pop("create_time", ago(days=3)),
            state=values.pop("state", auth_pb2.KEY_STATE_ACTIVE),
            created_by="user_2" if name == "Website chat" else "user_1",
            created_by_name="Charles Babbage" if name == "Website chat" else "Ada Lovelace",
            replaces_key_id=values.pop("replaces", ""),
            may_change=self.role != access_token_pb2.ACCOUNT_ROLE_VIEWER,
        )
        for field, value in values.items():
            if isinstance(value, Timestamp):
                getattr(made, field).CopyFrom(value)
            else:
                setattr(made, field, value)
        self.keys.append(made)
        return made

    def add_many_keys(self, count: int) -> None:
        """Gives the account further keys, all of which were used on the same day."""
        made = [self.add_key(f"Service {number:04d}", last_use_time=ago(hours=2)) for number in range(count)]
        self.metering.add_charges(each.key_id for each in made)

    def find(self, key_id: str) -> auth_pb2.Key:
        for each in self.keys:
            if each.key_id == key_id:
                return each
        raise LegatoError(Reason.NOT_FOUND, "There is no such key.")

    def CreateKey(self, request: Any) -> Any:
        self.require_recent()
        if request.form_id in self.forms:
            return auth_pb2.CreateKeyResponse(key=self.forms[request.form_id])
        made = self.add_key(request.name)
        self.forms[request.form_id] = made
        return auth_pb2.CreateKeyResponse(key=made, api_key=SECRET)

    def RotateKey(self, request: Any) -> Any:
        self.require_recent()
        made = self.add_key(self.find(request.key_id).name, replaces=request.key_id)
        return auth_pb2.RotateKeyResponse(key=made, api_key=SECRET)

    def RenameKey(self, request: Any) -> Any:
        self.find(request.key_id).name = request.name
        return auth_pb2.RenameKeyResponse()

    def UpdateKey(self, request: Any) -> Any:
        return auth_pb2.UpdateKeyResponse()

    def RevokeKey(self, request: Any) -> Any:
        found = self.find(request.key_id)
        found.state = auth_pb2.KEY_STATE_REVOKED
        return auth_pb2.RevokeKeyResponse(key=found)

    def ListKeys(self, request: Any) -> Any:
        found = [each for each in self.keys if request.search.lower() in each.name.lower()]
        if request.only_active:
            found = [each for each in found if each.state == auth_pb2.KEY_STATE_ACTIVE]
        if created_by := "user_1" if request.only_own else request.created_by:
            found = [each for each in found if each.created_by == created_by]
        start = int(request.page_token or 0)
        end = start + (request.page_size or len(found) or 1)
        return auth_pb2.ListKeysResponse(
            keys=found[start:end],
            next_page_token=str(end) if end < len(found) else "",
            previous_page_token=str(max(0, start - request.page_size)) if start else "",
            also_keys=[each for each in self.keys if each.key_id in request.also_key_ids],
        )

    def CreateKeyAccessToken(self, request: Any) -> Any:
        found = self.find(request.key_id)
        token = self.sign_access(account_id=ACCOUNT_ID, key_id=found.key_id, replaced_key_id=found.replaces_key_id)
        return auth_pb2.CreateKeyAccessTokenResponse(access_token=token)

    def GetKey(self, request: Any) -> Any:
        found = self.find(request.key_id)
        by_id = {each.key_id: each for each in self.keys}
        successors = [each for each in self.keys if each.replaces_key_id == request.key_id]
        return auth_pb2.GetKeyResponse(
            key=found,
            replaced=by_id.get(found.replaces_key_id),
            replaced_by=successors[0] if successors else None,
        )
