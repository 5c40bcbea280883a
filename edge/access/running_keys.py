"""Detects keys that are revoked while their answers run.

A key is checked when a request arrives. Its answer may run for minutes, so delivery checks the key again at each piece.
That must cost nothing: it reads one attribute, which is set when auth has named the key.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

# The most keys that auth looks up at once.
ASKED_AT_ONCE = 1_000
ASK_AGAIN_AFTER_S = 0.2


class RunningKey:
    """The key of one running answer, or of the internal caller that it is for; a context manager."""

    __slots__ = ("_is_caller", "_running_keys", "is_refused", "key_id")

    def __init__(self, running_keys: "RunningKeys", key_id: str, *, is_caller: bool) -> None:
        self._running_keys = running_keys
        self._is_caller = is_caller
        self.key_id = key_id
        self.is_refused = False

    def raise_if_refused(self) -> None:
        if self.is_refused:
            if self._is_caller:
                raise LegatoError(Reason.CALLER_NOT_GRANTED, Sentence("grant_revoked_meanwhile"))
            raise LegatoError(Reason.KEY_INVALID, Sentence("key_revoked_meanwhile"))

    def __enter__(self) -> "RunningKey":
        return self

    def __exit__(self, *failure: object) -> None:
        self._running_keys.remove(self)


class RunningKeys:
    """The keys of all running answers; others are not kept."""

    def __init__(self, find_refused: Callable[[Sequence[str]], Awaitable[Iterable[str]]]) -> None:
        """Takes `find_refused`, which queries auth for the keys that are no longer valid."""
        self._find_refused = find_refused
        self._by_key_id: dict[str, set[RunningKey]] = {}
        self._doubted: set[str] = set()
        self._asking: asyncio.Task[None] | None = None

    def add(self, key_id: str, *, is_caller: bool = False) -> RunningKey:
        running_key = RunningKey(self, key_id, is_caller=is_caller)
        self._by_key_id.setdefault(key_id, set()).add(running_key)
        return running_key

    def remove(self, running_key: RunningKey) -> None:
        running = self._by_key_id.get(running_key.key_id)
        if running is not None:
            running.discard(running_key)
            if not running:
                del self._by_key_id[running_key.key_id]

    def refuse(self, key_ids: Iterable[str]) -> None:
        for key_id in key_ids:
            for running_key in self._by_key_id.get(key_id, ()):
                running_key.is_refused = True

    def recheck(self, key_ids: Iterable[str]) -> None:
        """Queries auth again for keys whose revocation may have been missed."""
        self._doubted |= self._by_key_id.keys() & key_ids
        if self._doubted and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask_auth())

    def recheck_all(self) -> None:
        self.recheck(list(self._by_key_id))

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask_auth(self) -> None:
        """Retries until auth has answered for every running key: it will not name these keys again by itself."""
        while self._doubted:
            asked = list(islice(self._doubted, ASKED_AT_ONCE))
            # A key that is doubted from now on needs a call that has not been sent yet.
            self._doubted.difference_update(asked)
            try:
                self.refuse(await self._find_refused(asked))
            except LegatoError:
                self._doubted.update(asked)
                await asyncio.sleep(ASK_AGAIN_AFTER_S)
                self._doubted &= self._by_key_id.keys()
