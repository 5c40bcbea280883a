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
TEXTS: Final[Mapping[str, str]] = {
    "key-renamed": N_("The key has a new name."),
    "key-revoked": N_("Revoked. It took effect on every edge %(s)s s after you clicked."),
    "key-limits": N_("The key's limits are in effect everywhere, after %(s)s s."),
    "key-classes": N_("What the key may use is in effect everywhere, after %(s)s s."),
    "shown-before": N_("What you made was shown once. If you did not save it, remove it and make another."),
    "codes-shown-before": N_("The codes were shown once, and they work. If you did not save them, make new ones."),
    "spend-limits-set": N_("The spend limits hold for every request from now on."),
    "spend-limits-reached": N_("The spend limits are set. One of them is reached: new requests are refused."),
    "signed-out": N_("You are signed out, here and on the server."),
    "sessions-ended": N_("Sessions ended: %(n)s."),
    "passkey-added": N_("The passkey was added. Next time, sign in with it."),
    "passkey-renamed": N_("The passkey has a new name."),
    "passkey-removed": N_("The passkey was removed. It no longer signs anybody in."),
    "link-sent": N_("If a user has this address, a sign-in link is on its way. It works for 15 minutes."),
    "password-set": N_("The password was set. Now add an authenticator app: they sign you in together."),
    "password-changed": N_("The password was changed."),
    "password-removed": N_("The password and the authenticator app no longer sign anybody in."),
    "totp-set": N_("The authenticator app was set up."),
    "identity-linked": N_("Linked. From now on you can sign in with it."),
    "identity-removed": N_("The link was removed. It no longer signs you in."),
    "account-changed": N_("In effect everywhere, after %(s)s s."),
    "role-changed": N_("The role was changed."),
    "member-removed": N_(
        "The member was removed. Every edge refuses the keys that they made, but for those that you kept."
    ),
    "notices-changed": N_("Saved."),
    "webhook-removed": N_("The webhook was removed. Nothing is sent there any more."),
    "notice-test-sent": N_("A test is on its way. Load this page again to see how it went."),
    "notice-sent-again": N_("It is tried again now. Load this page again to see how it went."),
    "invitation-cancelled": N_("The invitation was cancelled. Its link no longer works."),
    "joined": N_("Welcome. You are a member of this account now."),
    "note-added": N_("The note was added."),
    "note-changed": N_("The note was changed."),
    "note-removed": N_("The note was removed, and erased."),
    "notes-forgotten": N_("All notes were removed, and erased: %(n)s."),
    "document-added": N_("The document was added. Passages: %(n)s."),
    "document-removed": N_("The document was removed, and erased."),
    "name-changed": N_("Your name was changed."),
    "account-created": N_("The account was created. It has no credit, keys or members yet."),
    "account-suspended": N_("Suspended. It took effect on every edge %(s)s s after you clicked."),
    "account-resumed": N_("Resumed everywhere, after %(s)s s."),
    "payment-booked": N_("Thank you. %(usd)s were added to your credit; the balance below includes them."),
    "credit-booked": N_("Booked. The balance below includes it."),
    "user-disabled": N_("Disabled. All sessions of the user have ended."),
    "user-enabled": N_("The user can sign in again."),
    "operator-made": N_("The user is an operator now."),
    "operator-removed": N_("The user is no longer an operator."),
}

# All others say that something was done.
WARNINGS: Final = frozenset({"shown-before", "codes-shown-before", "spend-limits-reached"})
NANOS_OF_TENTH_OF_CENT: Final = 1_000_000

# Those that say how long the change took.
TIMED: Final = frozenset(name for name, text in TEXTS.items() if "%(s)" in text)


def flash_message_in(given: str) -> FlashMessage | None:
    name, _dot, figure = given.partition(".")
    if name not in TEXTS or not figure.isdecimal() or len(figure) > 9:
        return None
    n = int(figure)
    text = _(TEXTS[name], n=number(n), s=number(n / 1000, 1), usd=usd(n * NANOS_OF_TENTH_OF_CENT))
    return FlashMessage("warn" if name in WARNINGS else "good", text)
