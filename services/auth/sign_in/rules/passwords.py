"""Hashes passwords with argon2id: one at a time, in a thread of its own, since auth sends heartbeats meanwhile."""

import asyncio
import secrets
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from services.auth.core.checks import refusal
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

if TYPE_CHECKING:
    from argon2 import PasswordHasher

LENGTH_LEAST: Final = 15
LENGTH_MOST: Final = 1_000
# 19 MiB, two passes, one lane: about 40 ms.
MEMORY_KIB: Final = 19 * 1024
PASSES: Final = 2
# Beside the one that is computed. More would hold up sign-ins for longer than people wait.
WAITING_MOST: Final = 4
RETRY_AFTER_S: Final = 1.0

# The pieces that long passwords of lists of stolen ones are made of.
_COMMON: Final = (
    "passwort", "password", "passw0rd", "p@ssw0rd", "motdepasse", "qwertyuiop", "qwerty", "azerty", "asdfghjkl",
    "asdfgh", "zxcvbnm", "1q2w3e4r5t6y", "1qaz2wsx3edc", "qazwsxedc", "abcdefghijklmnopqrstuvwxyz", "abcdef", "letmein",
    "iloveyou", "welcome", "administrator", "admin", "secret", "changeme", "legato", "monkey", "dragon", "football",
    "baseball", "superman", "batman", "sunshine", "princess", "trustno1", "starwars", "whatever", "master", "login",
)  # fmt: skip
_DISTINCT_LEAST: Final = 6
_OWN_LEAST: Final = 5

ResultT = TypeVar("ResultT")


def checked_password(given: str, *known: str) -> str:
    """Returns the password; raises if it is too short, or among the first that anybody would guess. `known` is what
    others know of the user."""
    password = unicodedata.normalize("NFKC", given)
    if len(password) < LENGTH_LEAST:
        raise refusal("password", Sentence("password_too_short", least=LENGTH_LEAST))
    if len(password) > LENGTH_MOST:
        raise refusal("password", Sentence("password_too_long", most=LENGTH_MOST))
    own = password.casefold()
    for piece in (*(part for text in known for part in text.casefold().replace("@", " ").split()), *_COMMON):
        if len(piece) > 2:
            own = own.replace(piece, "")
    own = "".join(filter(str.isalpha, own))
    if len(set(password)) < _DISTINCT_LEAST or len(set(own)) < _OWN_LEAST:
        raise refusal("password", Sentence("password_too_easy"))
    return password


class PasswordHashes:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="password")
        self._hasher: PasswordHasher | None = None
        # A hash of no password that anybody has, for users without one.
        self._unknown_users = ""
        self._running = 0

    async def hash(self, password: str) -> str:
        return await self._in_turn(lambda: self._load().hash(password))

    async def verify(self, stored: str, given: str) -> bool:
        """Compares a password with a stored hash. If that is empty, it takes as long and is never equal."""
        return await self._in_turn(lambda: self._verify(stored, given))

    def _verify(self, stored: str, given: str) -> bool:
        from argon2.exceptions import InvalidHashError, VerificationError

        hasher = self._load()
        try:
            hasher.verify(stored or self._unknown_users, unicodedata.normalize("NFKC", given[: LENGTH_MOST + 1]))
        except (InvalidHashError, VerificationError):
            return False
        return bool(stored)

    def _load(self) -> "PasswordHasher":
        """Imports the library at the first use, in the thread."""
        if self._hasher is None:
            from argon2 import PasswordHasher

            self._hasher = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=1)
            self._unknown_users = self._hasher.hash(secrets.token_urlsafe(32))
        return self._hasher

    async def _in_turn(self, work: Callable[[], ResultT]) -> ResultT:
        if self._running > WAITING_MOST:
            raise LegatoError(Reason.TOO_MANY_SIGN_INS, Sentence("sign_ins_at_once"), retry_after_s=RETRY_AFTER_S)
        self._running += 1
        # Counted until the thread is done with it, even if it is no longer waited for.
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        running.add_done_callback(self._record_done)
        return await asyncio.shield(running)

    def _record_done(self, done: "asyncio.Future[ResultT]") -> None:
        self._running -= 1
        if not done.cancelled():
            done.exception()
