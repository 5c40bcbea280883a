"""Sentences of services in the language of a visit: refusals, summaries of notices, comparisons of models. Services
speak English alone; what people meet on pages is in the catalogue."""

import re
from datetime import date
from typing import Final

from console.display.language import N_, EnglishText, _, in_figures
from console.display.words import short_day

# All models but the one that is judged.
_REST: Final = N_("the rest")

# What varies in a sentence stands in it as `%(name)s`: a figure, a name, or a word that is among these messages itself.
MESSAGES: Final = (
    N_("%(what)s is not available right now. Please retry."),
    N_("%(what)s is saturated right now. Please retry."),
    N_("Sign-in"),
    N_("The ledger"),
    N_("The chat service"),
    N_("Payments"),
    N_("The service"),
    N_("The sign-in provider"),
    N_("The payment provider"),
    N_("The space for new documents"),
    N_("Something went wrong on our side."),
    N_("Your role in this account does not allow this."),
    N_("This session has ended. Please sign in again."),
    N_("That did not work. It may have been used before, or have expired."),
    N_("Too many people sign in right now. Please try again in a moment."),
    N_("Too many attempts from your network. Please wait a moment."),
    N_("That is too often. Please wait a little."),
    N_("This is your last way to sign in. Add another one or recovery codes first."),
    N_("You have %(most)s passkeys: remove one first."),
    N_("This is not an email address."),
    N_("A password must have at least %(least)s characters. Four or five words are easy to keep."),
    N_("A password must have at most %(most)s characters."),
    N_("This password is too easy to guess. Take words that do not belong together."),
    N_("There is no address to send a code to."),
    N_("Give the email address that you will sign in with."),
    N_("This took too long. Scan the new picture."),
    N_("This is not the code that the app shows now."),
    N_("An account keeps at least one owner."),
    N_("An account has at most %(most)s members."),
    N_("An account can have at most %(most)s webhooks. Remove one first."),
    N_("You are the last owner of %(name)s: make another member an owner, or close the account, first."),
    N_("This account was closed for good."),
    N_("This is not an address."),
    N_("A webhook's address must start with https://."),
    N_("A webhook's address must be https://HOST/PATH, without a password or a fragment."),
    N_("A webhook's address must be reachable from the internet."),
    N_("A webhook's address must not be link-local, nor that of a metadata service."),
    N_("There is a user with this email address already."),
    N_("This user is disabled."),
    N_("The last operator stays: make another user an operator first."),
    N_("A name must have 1 to %(most)s characters."),
    N_("A name must not contain control characters."),
    N_("A search has at most %(most)s characters."),
    N_("At most %(most)s characters are searched for."),
    N_("This limit must be from 0 to %(most)s."),
    N_("A key's limit cannot be above the account's, nor above the service's."),
    N_("Allow at least one class, of: %(classes)s."),
    N_("The account may not use %(classes)s, so its keys may not either."),
    N_("The daily spend limit of a key cannot exceed the account's."),
    N_("The monthly spend limit of a key cannot exceed the account's."),
    N_("The total spend limit of a key cannot exceed the account's."),
    N_("A spend limit must not be negative, and at most a million dollars."),
    N_("A threshold must not be negative, and at most a million dollars."),
    N_("A payment is between $%(least)s and $%(most)s."),
    N_("The account's available balance, without holds, is less than that."),
    N_("The account's balance would exceed the maximum."),
    N_("The account's usage is being added up. Try again in some seconds."),
    N_("The period is too long: choose a shorter one."),
    N_("Entries from before %(day)s are not kept. Choose a later time."),
    N_("A note must have 1 to %(most)s characters."),
    N_("A question must have 1 to %(most)s characters."),
    N_("An account may have at most %(most)s notes: remove one first."),
    N_("An account may have at most %(most)s attachments: remove one first."),
    N_("The account is adding %(running)s documents already. Please retry when one of them is ready."),
    N_("A document may have at most %(most)s MB."),
    N_("The document arrives too slowly: at least %(least)s KB a second are needed."),
    N_("The document was not sent completely."),
    N_("The document is missing."),
    N_("The document has no text."),
    N_("The document has too much text."),
    N_("The document has too much text: split it into several."),
    N_("The document is damaged, or too large when decompressed."),
    N_("The document takes too long to read."),
    N_("The document takes too much memory to read."),
    N_("The document takes too much memory or time to read."),
    N_("This is neither text, Markdown, HTML nor a PDF."),
    N_("This is neither text or HTML in UTF-8 nor a PDF."),
    N_("The PDF is protected by a password."),
    N_("The PDF is damaged."),
    N_("The PDF has %(count)s pages; the limit is %(most)s."),
    N_("The balance is $%(balance)s, which is below $%(threshold)s."),
    N_("The account has reached its %(period)s spend limit of $%(limit)s: requests are refused."),
    N_("The account has spent $%(spent)s of its %(period)s spend limit of $%(limit)s."),
    N_("The key %(key)s has reached its %(period)s spend limit of $%(limit)s: requests are refused."),
    N_("The key %(key)s has spent $%(spent)s of its %(period)s spend limit of $%(limit)s."),
    N_("daily"),
    N_("monthly"),
    N_("total"),
    N_("The key %(key)s expires on %(day)s."),
    N_("The key %(key)s was used from %(network)s, where it had not been used before."),
    N_("This is a test. Nothing has happened."),
    N_("Too few calls to compare: %(name)s has %(calls)s, and %(least)s are needed."),
    N_("Neither fails clearly more often: %(failed)s %% of %(calls)s against %(other_failed)s %% of %(other_calls)s."),
    N_("%(name)s fails more often: %(failed)s %% of %(calls)s against %(other_failed)s %% of %(other_calls)s."),
    _REST,
)

# What stands for words, and not for a name or a figure.
_WORDS: Final = ("what", "period")
# What is not just any text.
_FORMS: Final = {"day": r"\d{4}-\d\d-\d\d"}
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s")


def _pattern_of(message: str) -> re.Pattern[str]:
    # Texts and names of placeholders take turns.
    parts = enumerate(_PLACEHOLDER.split(message))
    return re.compile(
        "".join(_group(part) if place % 2 else re.escape(part.replace("%%", "%")) for place, part in parts)
    )


def _group(name: str) -> str:
    return f"(?P<{name}>{_FORMS.get(name, '.+')})"


_PATTERNS: Final = tuple((message, _pattern_of(message)) for message in MESSAGES)


def service_words(message: str) -> str:
    """Translates a sentence of a service, and writes its dates as pages do; one that is not in the catalogue stays
    English, and pages mark it as that."""
    for known, pattern in _PATTERNS:
        if found := pattern.fullmatch(message):
            return _(known, **{name: _word(name, value) for name, value in found.groupdict().items()})
    return EnglishText(message)


def _word(name: str, value: str) -> str:
    """Translates a word of a sentence. A name stays as it is, even one that is a word elsewhere on the pages."""
    if name == "day":
        return short_day(date.fromisoformat(value), year=True)
    if re.fullmatch(r"[\d,.]+", value):
        return in_figures(value)
    return _(value) if name in _WORDS or value == _REST else value
