"""Converts what requests give to values."""

from typing import Any, Final

from google.protobuf.message import Message

from legato_protos.auth.v1 import auth_pb2 as pb
from legato_protos.type.v1.class_allowance_pb2 import ClassAllowance as ClassAllowanceMessage
from services.auth.core import checks
from services.auth.core.records.accounts import ALL_CLASSES, Account, ClassAllowance, KeyLimits
from services.chassis.access_tokens import Access, access_invalid, current_access
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence

LIMITS: Final = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
SWITCHES: Final = ("search", "memory", "attachments")


def from_allowance(allowance: ClassAllowance) -> ClassAllowanceMessage | None:
    return None if allowance.class_ids is None else ClassAllowanceMessage(class_ids=allowance.class_ids)


def given(request: Message, *names: str) -> dict[str, Any]:
    """Returns those of these fields that a request has."""
    return {name: getattr(request, name) for name in names if request.HasField(name)}


def given_classes(request: Any) -> ClassAllowance | None:
    """Returns what a request allows; None leaves it as it is."""
    allows_all = getattr(request, "allow_all_classes", False)
    if not request.HasField("allowed_classes"):
        return ALL_CLASSES if allows_all else None
    if allows_all:
        raise checks.refusal("allowed_classes", Sentence("classes_all_or_some"))
    return checks.allowed_classes(request.allowed_classes.class_ids)


def required_access() -> Access:
    """Returns the access of the current call; raises on a socket without a console, where no call has any."""
    access = current_access.get()
    if access is None:
        raise access_invalid()
    return access


def to_account(account: Account, service_limits: KeyLimits) -> pb.Account:
    auto_class = account.allowed_classes.auto_class(account.preferred_class)
    allowed = from_allowance(account.allowed_classes)
    parts = account, account.limits, account.grounding
    return to_message(
        pb.Account,
        *parts,
        auto_class=auto_class,
        allowed_classes=allowed,
        default_limits=to_message(pb.RateLimits, service_limits),
    )
