"""Records in the audit log how the role of a member changed."""

from services.chassis.access_tokens import AccountRole
from services.chassis.changes import Change, changes_between


def role_change(before: AccountRole | None, after: AccountRole | None) -> list[Change]:
    """Returns the change of a member's role; None: they are no member."""
    return changes_between({"role": _name_of(before)}, {"role": _name_of(after)})


def _name_of(role: AccountRole | None) -> str | None:
    return role.name.lower() if role else None
