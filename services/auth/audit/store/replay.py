"""Applies what the audit log tells to a database that was restored from a backup of before.

All that the database has is older than these events, so what an event ended is ended by what it belongs to. What an
event began, such as a new key, is not in it: keys and codes have secrets, which no log has.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa

from services.auth.accounts.store import close_account
from services.auth.core.records.accounts import Account, ClassAllowance
from services.auth.core.records.audit import AuditEvent
from services.auth.core.records.users import SignInMethod
from services.auth.core.store import users
from services.auth.core.store.tables import accounts, memberships, sessions
from services.auth.keys.records import CallerGrant
from services.auth.keys.store import epochs
from services.auth.keys.store.callers import apply_grant, lock_grants, put_grants, revoke_grants
from services.auth.keys.store.playground import end_tokens
from services.auth.keys.store.tables import keys
from services.auth.notices.store import notices
from services.auth.people.store import erase_user
from services.auth.sign_in.store import codes, credentials, passkeys
from services.auth.sign_in.store.tables import challenges, invitations, passwords, recovery_codes, totp
from services.chassis.access_tokens import AccountRole
from services.chassis.database.records import add, get

Effect = Callable[[sa.Connection, AuditEvent], object]

# The steps of authenticator apps, and how many a code may be ahead.
_TOTP_STEP_US: Final = 30_000_000
_TOTP_STEPS_AHEAD: Final = 1


# Columns of keys and accounts that are called like the settings in events.
_LIMITS: Final = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
_SETTINGS: Final = (*_LIMITS, "allowed_classes", "preferred_class", "search", "memory", "attachments")


def replay(connection: sa.Connection, event: AuditEvent) -> None:
    """Applies an event, if there is something to apply."""
    effect = _EFFECTS.get(event.action)
    if effect is not None:
        effect(connection, event)


def end_all_sign_ins(connection: sa.Connection) -> None:
    """Ends what is good for minutes, or has a token that may have been replaced since; and has callers drop their
    caches."""
    end_tokens(connection, sa.true())
    connection.execute(sessions.delete())
    connection.execute(challenges.delete())
    epochs.raise_epoch(connection, None)


def _revoke_key(connection: sa.Connection, event: AuditEvent) -> None:
    is_good = sa.and_(keys.c.key_id == event.object_id, keys.c.revoked_at_us.is_(None))
    connection.execute(keys.update().where(is_good).values(revoked_at_us=event.occurred_at_us))


def _suspend(connection: sa.Connection, event: AuditEvent) -> None:
    _set_suspended(connection, event, event.occurred_at_us)


def _resume(connection: sa.Connection, event: AuditEvent) -> None:
    _set_suspended(connection, event, None)


def _set_suspended(connection: sa.Connection, event: AuditEvent, at_us: int | None) -> None:
    is_it = accounts.c.account_id == event.object_id
    connection.execute(accounts.update().where(is_it).values(suspended_at_us=at_us))


def _change_key(connection: sa.Connection, event: AuditEvent) -> None:
    _change(connection, keys, keys.c.key_id == event.object_id, event)


def _change_account(connection: sa.Connection, event: AuditEvent) -> None:
    _change(connection, accounts, accounts.c.account_id == event.object_id, event)


def _change(connection: sa.Connection, table: sa.Table, is_it: sa.ColumnElement[bool], event: AuditEvent) -> None:
    """Sets what an event tells of limits, classes and switches; those of release 0.2 do not."""
    values: dict[str, Any] = {each.field: each.after for each in event.changes or () if each.field in _SETTINGS}
    if "allowed_classes" in values:
        values["allowed_classes"] = ClassAllowance(values["allowed_classes"])
    if values:
        connection.execute(table.update().where(is_it).values(**values))


def _revoke_caller(connection: sa.Connection, event: AuditEvent) -> None:
    revoke_grants(connection, event.object_id, event.account_id, event.occurred_at_us)


def _change_grant(connection: sa.Connection, event: AuditEvent) -> None:
    """Sets the limits that a grant was given again, by itself or within the grant of all accounts. It gives no program
    a right that it does not have."""
    grants = [each for each in lock_grants(connection, event.object_id) if each.account_id in ("", event.account_id)]
    if all(each.revoked_at_us is not None for each in grants):
        return
    own = next((each for each in grants if each.account_id == event.account_id), None)
    granted = own or CallerGrant(
        f"grant_{event.event_no}", event.object_id, event.account_id, created_at_us=event.occurred_at_us
    )
    limits: dict[str, Any] = {each.field: each.after for each in event.changes or () if each.field in _LIMITS}
    granted = replace(granted, revoked_at_us=None, limits=replace(granted.limits, **limits))
    if own is None:
        add(connection, granted)
    else:
        put_grants(connection, [granted])
    apply_grant(connection, granted)


def _disable(connection: sa.Connection, event: AuditEvent) -> None:
    users.change_user(connection, event.object_id, disabled_at_us=event.occurred_at_us)
    codes.remove_link(connection, event.object_id)


def _enable(connection: sa.Connection, event: AuditEvent) -> None:
    users.change_user(connection, event.object_id, disabled_at_us=None)


def _set_operator(*, is_operator: bool) -> Effect:
    return lambda connection, event: users.change_user(connection, event.object_id, is_operator=is_operator)


def _remove_member(connection: sa.Connection, event: AuditEvent) -> None:
    users.remove_member(connection, event.account_id, event.object_id)
    codes.cancel_invitations(connection, event.account_id, invited_by=event.object_id)


def _set_role(role: AccountRole) -> Effect:
    return lambda connection, event: users.change_role(connection, event.account_id, event.object_id, role)


def _lower_role(connection: sa.Connection, event: AuditEvent) -> None:
    """Does so for events of release 0.2, which do not name the role: an owner can give it back."""
    is_it = sa.and_(memberships.c.account_id == event.account_id, memberships.c.user_id == event.object_id)
    connection.execute(memberships.update().where(is_it).values(role=AccountRole.VIEWER))


def _end_invitation(connection: sa.Connection, event: AuditEvent) -> None:
    connection.execute(invitations.delete().where(invitations.c.invitation_id == event.object_id))


def _remove_link(connection: sa.Connection, event: AuditEvent) -> None:
    codes.remove_link(connection, event.object_id or event.user_id)


def _use_recovery_code(connection: sa.Connection, event: AuditEvent) -> None:
    if event.object_id:
        codes.remove_recovery_code(connection, event.object_id)
    else:
        # Release 0.2 does not name the code.
        _remove_recovery_codes(connection, event)


def _remove_recovery_codes(connection: sa.Connection, event: AuditEvent) -> None:
    connection.execute(recovery_codes.delete().where(recovery_codes.c.user_id == event.user_id))


def _use_totp(connection: sa.Connection, event: AuditEvent) -> None:
    step = event.occurred_at_us // _TOTP_STEP_US + _TOTP_STEPS_AHEAD
    credentials.record_totp_step(connection, event.user_id, step)


def _use_passkey(connection: sa.Connection, event: AuditEvent) -> None:
    passkey_id, _, sign_count = event.object_id.partition("#")
    if sign_count:
        passkeys.raise_sign_count(connection, passkey_id, int(sign_count))


def _use_unknown(connection: sa.Connection, event: AuditEvent) -> None:
    """Ends what a refused proof used up: a recovery code, or a link."""
    if event.object_id.startswith(codes.RECOVERY_CODE):
        codes.remove_recovery_code(connection, event.object_id)
    elif event.object_id.startswith("user_"):
        codes.remove_link(connection, event.object_id)


def _remove_passkey(connection: sa.Connection, event: AuditEvent) -> None:
    passkeys.remove_passkey(connection, event.user_id, event.object_id)


def _remove_password(connection: sa.Connection, event: AuditEvent) -> None:
    credentials.remove_password(connection, event.user_id)


def _replace_password(connection: sa.Connection, event: AuditEvent) -> None:
    connection.execute(passwords.delete().where(passwords.c.user_id == event.user_id))


def _replace_totp(connection: sa.Connection, event: AuditEvent) -> None:
    connection.execute(totp.delete().where(totp.c.user_id == event.user_id))


def _remove_identity(connection: sa.Connection, event: AuditEvent) -> None:
    credentials.remove_identity(connection, event.user_id, event.object_id)


def _remove_webhook(connection: sa.Connection, event: AuditEvent) -> None:
    notices.remove_webhook(connection, event.account_id, event.object_id)


def _delete_user(connection: sa.Connection, event: AuditEvent) -> None:
    erase_user(connection, event.object_id)


def _close_account(connection: sa.Connection, event: AuditEvent) -> None:
    # An account that was created after the backup is not there.
    if get(connection, Account, event.object_id) is not None:
        close_account(connection, event.object_id, event.occurred_at_us)


_PROOFS: Final[Mapping[SignInMethod, Effect]] = {
    SignInMethod.LINK: _remove_link,
    SignInMethod.RECOVERY_CODE: _use_recovery_code,
    SignInMethod.PASSWORD: _use_totp,
    SignInMethod.PASSKEY: _use_passkey,
}

_EFFECTS: Final[Mapping[str, Effect]] = {
    "key.revoked": _revoke_key,
    "key.updated": _change_key,
    "account.updated": _change_account,
    "account.suspended": _suspend,
    "account.resumed": _resume,
    "caller.granted": _change_grant,
    "caller.revoked": _revoke_caller,
    "user.disabled": _disable,
    "user.enabled": _enable,
    "user.made_operator": _set_operator(is_operator=True),
    "user.no_longer_operator": _set_operator(is_operator=False),
    "member.removed": _remove_member,
    "member.role_changed": _lower_role,
    **{f"member.role_changed.{role.name.lower()}": _set_role(role) for role in AccountRole if role},
    "invitation.accepted": _end_invitation,
    "invitation.cancelled": _end_invitation,
    "sign_in_link.created": _remove_link,
    "user.signed_in": _use_unknown,
    "session.stepped_up": _use_unknown,
    **{f"user.signed_in.{method.value}": effect for method, effect in _PROOFS.items()},
    **{f"session.stepped_up.{method.value}": effect for method, effect in _PROOFS.items()},
    "recovery_codes.generated": _remove_recovery_codes,
    "passkey.removed": _remove_passkey,
    # Replaced ones have secrets that no log has: users sign in by another way, or by a link.
    "password.set": _replace_password,
    "password.removed": _remove_password,
    "totp.set": _replace_totp,
    "identity.removed": _remove_identity,
    "webhook.removed": _remove_webhook,
    "user.deleted": _delete_user,
    "account.closed": _close_account,
}
