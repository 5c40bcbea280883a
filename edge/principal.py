"""The account and key on whose behalf a request is made."""

from dataclasses import dataclass, field

from protos.auth.v1 import auth_pb2 as pb
from services.chassis.errors import LegatoError, Reason

Scope = pb.Scope


@dataclass(frozen=True, slots=True)
class Principal:
    account_id: str
    key_id: str
    # Empty means all scopes.
    scopes: frozenset["pb.Scope.ValueType"]
    # Seconds since 1970, by auth's clock; None if it never expires.
    expires_at_s: float | None
    preferred_class: str
    requests_per_minute: int | None
    # The key of the account's digests, of content that may not be stored.
    digest_key: bytes = field(repr=False)
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    # The grounding sources that the account allows for chats without tools.
    search: bool = False
    memory: bool = False
    attachments: bool = False

    def may(self, scope: "pb.Scope.ValueType") -> bool:
        return not self.scopes or scope in self.scopes

    def require(self, scope: "pb.Scope.ValueType") -> None:
        if not self.may(scope):
            name = pb.Scope.Name(scope).removeprefix("SCOPE_").lower()
            raise LegatoError(Reason.SCOPE_MISSING, f"This API key does not have the required scope: {name}.")
