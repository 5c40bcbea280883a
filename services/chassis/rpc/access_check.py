"""Checks the access tokens of a console's calls.

A console is trusted with nothing but the users who visit it: it may sign users in, and every other call needs the token
that auth signed for one of them. Each method says in its .proto file what the token must have: see
protos/legato/type/v1/method_access.proto.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from legato_protos.type.v1.method_access_pb2 import TokenRule
from services.chassis.access_tokens import METADATA_KEY, Access, AccessTokenVerifier, current_access
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.callers import Context, Role, access_of, current_role
from services.chassis.sentence import Sentence

# How long after a passkey or a code no other is asked for.
STEP_UP_VALID_US: Final = 600_000_000

# Returns what a token's claims have become since, or raises.
Confirm = Callable[[Access, TokenRule], Awaitable[Access]]


class AccessCheck:
    """Checks the tokens of a service's calls."""

    def __init__(
        self, verifier: AccessTokenVerifier, now_us: Callable[[], int], confirm: Confirm | None = None
    ) -> None:
        self._verifier = verifier
        self._now_us = now_us
        self._confirm = confirm

    async def check(self, context: Context, method: str) -> Access | None:
        """Returns the access that a call has; None where the method needs none. `context` is gRPC's."""
        rule = rule_of(method)
        if rule is None:
            return None
        metadata = context.invocation_metadata() or ()
        token = next((value for key, value in metadata if key == METADATA_KEY and isinstance(value, bytes)), b"")
        access = self._verifier.verify(token, self._now_us())
        if current_role.get() is Role.CONSOLE:
            # No user is an operator there, even with a token that was made for the operators' console.
            access = replace(access, is_operator=False)
        require_role(access, rule)
        if rule.recent or (rule.operators_recent and access.is_operator):
            require_recent(access, self._now_us())
        return access if self._confirm is None else await self._confirm(access, rule)


def rule_of(method: str) -> TokenRule | None:
    """Returns what a token must have for the method; None: it needs none."""
    access = access_of(method)
    return access.token if access.HasField("token") else None


def require_role(access: Access, rule: TokenRule) -> None:
    if rule.operator and not access.is_operator:
        raise role_missing()
    if access.role < rule.role and not (rule.or_operator and access.is_operator):
        raise role_missing()


def require_recent(access: Access, now_us: int) -> None:
    if access.authenticated_at_us + STEP_UP_VALID_US <= now_us:
        raise LegatoError(Reason.STEP_UP_REQUIRED, Sentence("step_up_required"))


def check_account(access: Access, method: str, request: Any) -> None:
    """Raises unless the request is about the token's account, or about none."""
    rule = access_of(method).token
    if not rule.role or (rule.or_operator and access.is_operator):
        return
    if not access.account_id or request.account_id != access.account_id:
        raise role_missing()


def require_no_key(key_id: str) -> None:
    """Raises if a console names a key: only auth knows whose it is. Callers without a token may name any."""
    if key_id and current_access.get() is not None:
        raise LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what="key"), param="key_id")


def role_missing() -> LegatoError:
    return LegatoError(Reason.ROLE_MISSING, Sentence("role_missing"))
