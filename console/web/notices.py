"""The messages of pages after a form was answered with a redirect. A cookie has a name and a number, never text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from console.display.words import TRANSLATIONS

_ = TRANSLATIONS.gettext


@dataclass(frozen=True, slots=True)
class Notice:
    kind: str
    text: str


# Texts with a number take `n`; times are in milliseconds.
TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "key-renamed": ("good", _("The key has a new name.")),
    "key-revoked": ("good", _("Revoked. Every edge refuses the key since %(s).1f s after you clicked.")),
    "key-limits": ("good", _("The key's limits are in effect everywhere, after %(s).1f s.")),
    "key-classes": ("good", _("What the key may use is in effect everywhere, after %(s).1f s.")),
    "shown-before": (
        "warn",
        _("What you made was shown once. If you did not save it, remove it and make another."),
    ),
    "codes-shown-before": (
        "warn",
        _("The codes were shown once, and they work. If you did not save them, make new ones."),
    ),
    "spend-limits-set": ("good", _("The spend limits hold for every request from now on.")),
    "signed-out": ("good", _("You are signed out, here and on the server.")),
    "sessions-ended": ("good", _("Sessions ended: %(n)d.")),
    "passkey-added": ("good", _("The passkey was added. Next time, sign in with it.")),
    "passkey-renamed": ("good", _("The passkey has a new name.")),
    "passkey-removed": ("good", _("The passkey was removed. It no longer signs anybody in.")),
    "link-sent": ("good", _("If a user has this address, a sign-in link is on its way. It works for 15 minutes.")),
    "password-set": ("good", _("The password was set. Now add an authenticator app: they sign you in together.")),
    "password-changed": ("good", _("The password was changed.")),
    "password-removed": ("good", _("The password and the authenticator app no longer sign anybody in.")),
    "totp-set": ("good", _("The authenticator app was set up.")),
    "identity-linked": ("good", _("Linked. From now on you can sign in with it.")),
    "identity-removed": ("good", _("The link was removed. It no longer signs you in.")),
    "account-changed": ("good", _("In effect everywhere, after %(s).1f s.")),
    "role-changed": ("good", _("The role was changed.")),
    "member-removed": (
        "good",
        _("The member was removed. Every edge refuses the keys that they made, but for those that you kept."),
    ),
    "notices-changed": ("good", _("Saved.")),
    "webhook-removed": ("good", _("The webhook was removed. Nothing is sent there any more.")),
    "notice-test-sent": ("good", _("A test is on its way. Load this page again to see how it went.")),
    "notice-sent-again": ("good", _("It is tried again now. Load this page again to see how it went.")),
    "invitation-cancelled": ("good", _("The invitation was cancelled. Its link no longer works.")),
    "joined": ("good", _("Welcome. You are a member of this account now.")),
    "note-added": ("good", _("The note was added.")),
    "note-changed": ("good", _("The note was changed.")),
    "note-removed": ("good", _("The note was removed, and erased.")),
    "notes-forgotten": ("good", _("All notes were removed, and erased: %(n)d.")),
    "document-added": ("good", _("The document was added. Passages: %(n)d.")),
    "document-removed": ("good", _("The document was removed, and erased.")),
    "name-changed": ("good", _("Your name was changed.")),
    "account-created": ("good", _("The account was created. It has no credit, keys or members yet.")),
    "account-suspended": (
        "good",
        _("Suspended. Every edge refuses the account's keys since %(s).1f s after you clicked."),
    ),
    "account-resumed": ("good", _("Resumed everywhere, after %(s).1f s.")),
    # A tenth of a cent, so that the time's format shows dollars.
    "payment-booked": ("good", _("Thank you. $%(s).2f were added to your credit; the balance below includes them.")),
    "credit-booked": ("good", _("Booked. The balance below includes it.")),
    "user-disabled": ("good", _("Disabled. All sessions of the user have ended.")),
    "user-enabled": ("good", _("The user can sign in again.")),
    "operator-made": ("good", _("The user is an operator now.")),
    "operator-removed": ("good", _("The user is no longer an operator.")),
}


def notice_in(given: str) -> Notice | None:
    name, _dot, figure = given.partition(".")
    if name not in TEXTS or not figure.isdecimal() or len(figure) > 9:
        return None
    kind, text = TEXTS[name]
    return Notice(kind, text % {"n": int(figure), "s": int(figure) / 1000})
