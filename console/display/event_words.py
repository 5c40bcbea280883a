"""Events of the audit log in words: who did what to what, and what changed from what to what."""

from typing import Final, NamedTuple

from console.display.change_words import change_words, words_of_value
from console.display.language import N_, _
from console.display.words import action_words
from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.changes import to_changes

# What a list is filtered by: the part of an action before its dot.
KINDS: Final = {
    "account": N_("Account"),
    "caller": N_("Internal programs"),
    "credit": N_("Credit"),
    "identity": N_("Single sign-on"),
    "invitation": N_("Invitations"),
    "key": N_("Keys"),
    "ledger": N_("Ledger"),
    "low_balance": N_("Low balance"),
    "maintenance": N_("Maintenance"),
    "member": N_("Members"),
    "notices": N_("Mail of notices"),
    "passkey": N_("Passkeys"),
    "password": N_("Password"),
    "playground": N_("Playground"),
    "recovery_codes": N_("Recovery codes"),
    "routes": N_("Routes"),
    "session": N_("Confirmations"),
    "sessions": N_("Ended sessions"),
    "sign_in_link": N_("Sign-in links"),
    "spend_limits": N_("Spend limits"),
    "totp": N_("Authenticator app"),
    "user": N_("Users and sign-ins"),
    "webhook": N_("Webhooks"),
}
OF_ACCOUNTS: Final = (
    "account", "caller", "credit", "invitation", "key", "low_balance", "member", "notices", "playground",
    "spend_limits", "user", "webhook",
)  # fmt: skip
# By action; after a colon, which of several ways to say it.
ACTIONS: Final = {
    "account.closed": N_("%(who)s closed the account"),
    "account.created": N_("%(who)s created the account"),
    "account.resumed": N_("%(who)s resumed the account"),
    "account.suspended": N_("%(who)s suspended the account"),
    "account.updated": N_("%(who)s changed the settings of the account"),
    "caller.granted": N_("%(who)s let the program “%(what)s” call"),
    "caller.revoked": N_("%(who)s no longer lets the program “%(what)s” call"),
    "credit.adjusted": N_("%(who)s adjusted the credit"),
    "credit.adjustment_requested": N_("%(who)s asked to adjust the credit"),
    "credit.granted": N_("%(who)s granted credit"),
    "credit.grant_requested": N_("%(who)s asked to grant credit"),
    "identity.linked": N_("%(who)s linked single sign-on"),
    "identity.removed": N_("%(who)s removed single sign-on"),
    "invitation.accepted": N_("%(who)s accepted an invitation"),
    "invitation.cancelled": N_("%(who)s cancelled an invitation"),
    "key.created": N_("%(who)s created the key “%(what)s”"),
    "key.renamed": N_("%(who)s renamed the key “%(what)s”"),
    "key.revoked": N_("%(who)s revoked the key “%(what)s”"),
    "key.rotated": N_("%(who)s rotated a key: the new one is “%(what)s”"),
    "key.updated": N_("%(who)s changed what the key “%(what)s” may use"),
    "ledger.audit_requested": N_("%(who)s had the ledger audited"),
    "low_balance.changed": N_("%(who)s changed the balance below which owners are told"),
    "maintenance.ended": N_("%(who)s ended maintenance"),
    "maintenance.started": N_("%(who)s started maintenance, or changed what it says"),
    "member.invited": N_("%(who)s invited a member"),
    "member.removed": N_("%(who)s removed %(what)s from the account"),
    "member.removed:self": N_("%(who)s left the account"),
    "member.role_changed": N_("%(who)s changed the role of %(what)s"),
    "member.role_changed.member": N_("%(who)s made %(what)s a member"),
    "member.role_changed.owner": N_("%(who)s made %(what)s an owner"),
    "member.role_changed.viewer": N_("%(who)s made %(what)s a viewer"),
    "notices.mail_changed": N_("%(who)s changed which notices are mailed"),
    "notices.own_mail_changed": N_("%(who)s changed whether they get notices by mail"),
    "passkey.added": N_("%(who)s added the passkey “%(what)s”"),
    "passkey.removed": N_("%(who)s removed a passkey"),
    "password.removed": N_("%(who)s removed the password and the authenticator app"),
    "password.set": N_("%(who)s set a password"),
    "playground.opened": N_("%(who)s opened the playground"),
    "recovery_codes.generated": N_("%(who)s made new recovery codes"),
    "routes.reload_requested": N_("%(who)s asked to reload the routes"),
    "session.stepped_up": N_("%(who)s could not confirm who they are"),
    "session.stepped_up.invitation": N_("%(who)s confirmed who they are, by an invitation"),
    "session.stepped_up.link": N_("%(who)s confirmed who they are, by a link"),
    "session.stepped_up.oidc": N_("%(who)s confirmed who they are, by single sign-on"),
    "session.stepped_up.passkey": N_("%(who)s confirmed who they are, by a passkey"),
    "session.stepped_up.password": N_("%(who)s confirmed who they are, by password and app"),
    "session.stepped_up.recovery-code": N_("%(who)s confirmed who they are, by a recovery code"),
    "sessions.ended": N_("%(who)s ended sessions"),
    "sign_in_link.created": N_("%(who)s made a sign-in link for %(what)s"),
    "sign_in_link.mailed": N_("%(who)s had a sign-in code mailed"),
    "spend_limits.change_requested": N_("%(who)s asked to change spend limits"),
    "spend_limits.changed": N_("%(who)s changed the spend limits of the account"),
    "spend_limits.changed:key": N_("%(who)s changed the spend limits of the key “%(what)s”"),
    "totp.set": N_("%(who)s set up an authenticator app"),
    "user.created": N_("%(who)s created the user %(what)s"),
    "user.deleted": N_("%(who)s deleted the user %(what)s"),
    "user.disabled": N_("%(who)s disabled the user %(what)s"),
    "user.enabled": N_("%(who)s enabled the user %(what)s"),
    "user.made_operator": N_("%(who)s made %(what)s an operator"),
    "user.no_longer_operator": N_("%(who)s took the operator’s rights from %(what)s"),
    "user.signed_in": N_("%(who)s could not sign in"),
    "user.signed_in.invitation": N_("%(who)s signed in, by an invitation"),
    "user.signed_in.link": N_("%(who)s signed in, by a link"),
    "user.signed_in.oidc": N_("%(who)s signed in, by single sign-on"),
    "user.signed_in.passkey": N_("%(who)s signed in, by a passkey"),
    "user.signed_in.password": N_("%(who)s signed in, by password and app"),
    "user.signed_in.recovery-code": N_("%(who)s signed in, by a recovery code"),
    "user.signed_out": N_("%(who)s signed out"),
    "webhook.added": N_("%(who)s added a webhook"),
    "webhook.removed": N_("%(who)s removed a webhook"),
}
# Where one setting changed, and the sentence can have it.
_ONE_CHANGE: Final = {
    "low_balance.changed": N_("%(who)s changed the balance below which owners are told from %(before)s to %(after)s"),
    "spend_limits.changed": N_("%(who)s changed the spend limit of the account from %(before)s to %(after)s"),
    "spend_limits.changed:key": N_(
        "%(who)s changed the spend limit of the key “%(what)s” from %(before)s to %(after)s"
    ),
}
# What they are about is new, or gone: it was not changed from something.
_WHOLE: Final = frozenset(
    {
        "caller.granted", "credit.adjusted", "credit.adjustment_requested", "credit.grant_requested", "credit.granted",
        "key.created", "key.rotated",
        "maintenance.ended", "member.invited", "member.removed", "user.created",
        "webhook.added", "webhook.removed",
    }
)  # fmt: skip


class EventWords(NamedTuple):
    sentence: str
    # What changed, unless the sentence says it.
    changes: tuple[str, ...]


def event_words(event: pb.AuditEvent) -> EventWords:
    who = event.user_name or (_("A former user") if event.user_id else _("The command line"))
    what, action, changes = event.object_name or event.object_id, _variant(event), to_changes(event.changes)
    if len(changes) == 1 and action in _ONE_CHANGE:
        [change] = changes
        before, after = (words_of_value(change.field, value) for value in (change.before, change.after))
        return EventWords(_(_ONE_CHANGE[action], who=who, what=what, before=before, after=after), ())
    if action in ACTIONS:
        sentence = _(ACTIONS[action], who=who, what=what)
    else:
        # Of an earlier or a later release.
        sentence = _("%(who)s: %(action)s", who=who, action=action_words(event.action))
    is_new = event.action in _WHOLE
    return EventWords(sentence, tuple(change_words(change, is_new=is_new) for change in changes))


def _variant(event: pb.AuditEvent) -> str:
    """Returns which of several sentences an action has."""
    if event.action == "spend_limits.changed" and event.object_id != event.account_id:
        return "spend_limits.changed:key"
    if event.action == "member.removed" and event.object_id == event.user_id:
        return "member.removed:self"
    return event.action
