"""The messages of pages after a form was answered with a redirect. A cookie has a name and a number, never text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from console.display.language import N_


@dataclass(frozen=True, slots=True)
class FlashMessage:
    kind: str
    text: str


# Texts with a number take `n`; times are in milliseconds.
TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "key-renamed": ("good", "The key has a new name."),
    "key-revoked": ("good", "Revoked. Every edge refuses the key since %(s).1f s after you clicked."),
    "key-limits": ("good", "The key's limits are in effect everywhere, after %(s).1f s."),
    "key-classes": ("good", "What the key may use is in effect everywhere, after %(s).1f s."),
    "shown-before": (
        "warn",
        "What you made was shown once. If you did not save it, remove it and make another.",
    ),
    "codes-shown-before": (
        "warn",
        "The codes were shown once, and they work. If you did not save them, make new ones.",
    ),
    "spend-limits-set": ("good", "The spend limits hold for every request from now on."),
    "signed-out": ("good", "You are signed out, here and on the server."),
    "sessions-ended": ("good", "Sessions ended: %(n)d."),
    "passkey-added": ("good", "The passkey was added. Next time, sign in with it."),
    "passkey-renamed": ("good", "The passkey has a new name."),
    "passkey-removed": ("good", "The passkey was removed. It no longer signs anybody in."),
    "link-sent": ("good", "If a user has this address, a sign-in link is on its way. It works for 15 minutes."),
    "password-set": ("good", "The password was set. Now add an authenticator app: they sign you in together."),
    "password-changed": ("good", "The password was changed."),
    "password-removed": ("good", "The password and the authenticator app no longer sign anybody in."),
    "totp-set": ("good", "The authenticator app was set up."),
    "identity-linked": ("good", "Linked. From now on you can sign in with it."),
    "identity-removed": ("good", "The link was removed. It no longer signs you in."),
    "account-changed": ("good", "In effect everywhere, after %(s).1f s."),
    "role-changed": ("good", "The role was changed."),
    "member-removed": (
        "good",
        "The member was removed. Every edge refuses the keys that they made, but for those that you kept.",
    ),
    "notices-changed": ("good", "Saved."),
    "webhook-removed": ("good", "The webhook was removed. Nothing is sent there any more."),
    "notice-test-sent": ("good", "A test is on its way. Load this page again to see how it went."),
    "notice-sent-again": ("good", "It is tried again now. Load this page again to see how it went."),
    "invitation-cancelled": ("good", "The invitation was cancelled. Its link no longer works."),
    "joined": ("good", "Welcome. You are a member of this account now."),
    "note-added": ("good", "The note was added."),
    "note-changed": ("good", "The note was changed."),
    "note-removed": ("good", "The note was removed, and erased."),
    "notes-forgotten": ("good", "All notes were removed, and erased: %(n)d."),
    "document-added": ("good", "The document was added. Passages: %(n)d."),
    "document-removed": ("good", "The document was removed, and erased."),
    "name-changed": ("good", "Your name was changed."),
    "account-created": ("good", "The account was created. It has no credit, keys or members yet."),
    "account-suspended": (
        "good",
        "Suspended. Every edge refuses the account's keys since %(s).1f s after you clicked.",
    ),
    "account-resumed": ("good", "Resumed everywhere, after %(s).1f s."),
    # A tenth of a cent, so that the time's format shows dollars.
    "payment-booked": ("good", "Thank you. $%(s).2f were added to your credit; the balance below includes them."),
    "credit-booked": ("good", "Booked. The balance below includes it."),
    "routes-changed": ("good", N_("Every router has the new routes. New chats use them; running ones go on.")),
    "canary-resumed": ("good", N_("Accounts are sent to the canary again.")),
    "user-disabled": ("good", "Disabled. All sessions of the user have ended."),
    "user-enabled": ("good", "The user can sign in again."),
    "operator-made": ("good", "The user is an operator now."),
    "operator-removed": ("good", "The user is no longer an operator."),
}

# Those that say how long the change took.
TIMED: Final = frozenset(name for name, (_kind, text) in TEXTS.items() if "%(s)" in text)


def flash_message_in(given: str) -> FlashMessage | None:
    name, _dot, figure = given.partition(".")
    if name not in TEXTS or not figure.isdecimal() or len(figure) > 9:
        return None
    kind, text = TEXTS[name]
    return FlashMessage(kind, text % {"n": int(figure), "s": int(figure) / 1000})
