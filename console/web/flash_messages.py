"""The messages of pages after a form was answered with a redirect. A cookie has a name and a number, never text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from console.display.language import N_, _
from console.display.words import number, usd


@dataclass(frozen=True, slots=True)
class FlashMessage:
    kind: str
    text: str


# A text has the number that comes with it as `n`; as `s`, in seconds if it is in milliseconds; or as `usd`, in tenths
# of a cent.
TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "key-renamed": ("good", N_("The key has a new name.")),
    "key-revoked": ("good", N_("Revoked. It took effect on every edge %(s)s s after you clicked.")),
    "key-limits": ("good", N_("The key's limits are in effect everywhere, after %(s)s s.")),
    "key-classes": ("good", N_("What the key may use is in effect everywhere, after %(s)s s.")),
    "shown-before": (
        "warn",
        N_("What you made was shown once. If you did not save it, remove it and make another."),
    ),
    "codes-shown-before": (
        "warn",
        N_("The codes were shown once, and they work. If you did not save them, make new ones."),
    ),
    "spend-limits-set": ("good", N_("The spend limits hold for every request from now on.")),
    "signed-out": ("good", N_("You are signed out, here and on the server.")),
    "sessions-ended": ("good", N_("Sessions ended: %(n)s.")),
    "passkey-added": ("good", N_("The passkey was added. Next time, sign in with it.")),
    "passkey-renamed": ("good", N_("The passkey has a new name.")),
    "passkey-removed": ("good", N_("The passkey was removed. It no longer signs anybody in.")),
    "link-sent": ("good", N_("If a user has this address, a sign-in link is on its way. It works for 15 minutes.")),
    "password-set": ("good", N_("The password was set. Now add an authenticator app: they sign you in together.")),
    "password-changed": ("good", N_("The password was changed.")),
    "password-removed": ("good", N_("The password and the authenticator app no longer sign anybody in.")),
    "totp-set": ("good", N_("The authenticator app was set up.")),
    "identity-linked": ("good", N_("Linked. From now on you can sign in with it.")),
    "identity-removed": ("good", N_("The link was removed. It no longer signs you in.")),
    "account-changed": ("good", N_("In effect everywhere, after %(s)s s.")),
    "role-changed": ("good", N_("The role was changed.")),
    "member-removed": (
        "good",
        N_("The member was removed. Every edge refuses the keys that they made, but for those that you kept."),
    ),
    "notices-changed": ("good", N_("Saved.")),
    "webhook-removed": ("good", N_("The webhook was removed. Nothing is sent there any more.")),
    "notice-test-sent": ("good", N_("A test is on its way. Load this page again to see how it went.")),
    "notice-sent-again": ("good", N_("It is tried again now. Load this page again to see how it went.")),
    "invitation-cancelled": ("good", N_("The invitation was cancelled. Its link no longer works.")),
    "joined": ("good", N_("Welcome. You are a member of this account now.")),
    "note-added": ("good", N_("The note was added.")),
    "note-changed": ("good", N_("The note was changed.")),
    "note-removed": ("good", N_("The note was removed, and erased.")),
    "notes-forgotten": ("good", N_("All notes were removed, and erased: %(n)s.")),
    "document-added": ("good", N_("The document was added. Passages: %(n)s.")),
    "document-removed": ("good", N_("The document was removed, and erased.")),
    "name-changed": ("good", N_("Your name was changed.")),
    "account-created": ("good", N_("The account was created. It has no credit, keys or members yet.")),
    "account-suspended": (
        "good",
        N_("Suspended. It took effect on every edge %(s)s s after you clicked."),
    ),
    "account-resumed": ("good", N_("Resumed everywhere, after %(s)s s.")),
    "payment-booked": ("good", N_("Thank you. %(usd)s were added to your credit; the balance below includes them.")),
    "credit-booked": ("good", N_("Booked. The balance below includes it.")),
    "routes-changed": ("good", N_("Every router has the new routes. New chats use them; running ones go on.")),
    "canary-resumed": ("good", N_("Accounts are sent to the canary again.")),
    "user-disabled": ("good", N_("Disabled. All sessions of the user have ended.")),
    "user-enabled": ("good", N_("The user can sign in again.")),
    "operator-made": ("good", N_("The user is an operator now.")),
    "operator-removed": ("good", N_("The user is no longer an operator.")),
}

NANOS_OF_TENTH_OF_CENT: Final = 1_000_000

# Those that say how long the change took.
TIMED: Final = frozenset(name for name, (_kind, text) in TEXTS.items() if "%(s)" in text)


def flash_message_in(given: str) -> FlashMessage | None:
    name, _dot, figure = given.partition(".")
    if name not in TEXTS or not figure.isdecimal() or len(figure) > 9:
        return None
    kind, text = TEXTS[name]
    n = int(figure)
    return FlashMessage(kind, _(text, n=number(n), s=number(n / 1000, 1), usd=usd(n * NANOS_OF_TENTH_OF_CENT)))
