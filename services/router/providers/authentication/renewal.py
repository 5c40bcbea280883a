"""Keeps credentials that expire: renews them ahead of time, one renewal at a time, and waits longer after each that
fails."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, TypeVar

from services.router.providers.authentication.credentials import CredentialsUnavailable

ValueT = TypeVar("ValueT")
# How long before their end credentials are renewed, or a fifth of their life if that is less: chats go on meanwhile.
RENEWED_BEFORE_S: Final = 300.0
_RENEWED_BEFORE_SHARE: Final = 0.2
# What is left of a life when they are used no more: a request takes some time to arrive.
_UNUSED_S: Final = 10.0
_UNUSED_SHARE: Final = 0.1
# The delay after a failed renewal, which doubles with each further one.
FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 60.0
# Credentials that a server refuses are renewed once in this time.
REFUSALS_HEEDED_EVERY_S: Final = 10.0


class Expiring(NamedTuple, Generic[ValueT]):
    value: ValueT
    # From when they were asked for.
    lifetime_s: float
    # When they are asked for again, if not as usual.
    renewed_after_s: float | None = None


class Renewal(Generic[ValueT]):
    def __init__(
        self, obtain: Callable[[], Awaitable[Expiring[ValueT]]], now: Callable[[], float] = time.monotonic
    ) -> None:
        """`obtain` raises CredentialsUnavailable."""
        self._obtain = obtain
        self._now = now
        self._current: ValueT | None = None
        self._task: asyncio.Task[None] | None = None
        self._renewed_at_s = self._used_until_s = self._tried_again_at_s = self._heeded_at_s = float("-inf")
        self._failures = 0
        # How often there were others.
        self.generation = 0
        # Why the last renewal failed; empty: it did not.
        self.failure = ""

    @property
    def current(self) -> ValueT:
        if self._current is None:
            raise CredentialsUnavailable(self.failure)
        return self._current

    async def ready(self) -> None:
        """Returns once there are valid credentials. Raises CredentialsUnavailable, at once if a renewal has just
        failed."""
        now_s = self._now()
        if now_s < self._renewed_at_s:
            return
        task = self._task
        if task is None and now_s >= self._tried_again_at_s:
            task = self._begin()
        if now_s >= self._used_until_s:
            await self._finish(task)

    async def renew(self, generation: int) -> bool:
        """Renews credentials that a server refuses; returns whether there are others now."""
        if generation != self.generation:
            return True
        now_s = self._now()
        if self._task is None and now_s - self._heeded_at_s < REFUSALS_HEEDED_EVERY_S:
            return False
        self._heeded_at_s = now_s
        try:
            await self._finish(self._task or self._begin())
        except CredentialsUnavailable:
            return False
        return True

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self) -> "asyncio.Task[None]":
        self._task = asyncio.get_running_loop().create_task(self._renew())
        return self._task

    async def _finish(self, task: "asyncio.Task[None] | None") -> None:
        if task is not None:
            # Other chats wait for the same renewal.
            await asyncio.shield(task)
        if self.failure:
            raise CredentialsUnavailable(self.failure)

    async def _renew(self) -> None:
        begun_s = self._now()
        try:
            obtained, lifetime_s, renewed_after_s = await self._obtain()
        except CredentialsUnavailable as error:
            self.failure = str(error)
            delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0**self._failures)
            self._failures += 1
            # Routers do not try again all at once.
            self._tried_again_at_s = self._now() + delay_s * random.uniform(0.5, 1.0)  # noqa: S311
        else:
            self.failure, self._failures = "", 0
            if obtained != self._current:
                self._current = obtained
                self.generation += 1
            if renewed_after_s is None:
                renewed_after_s = lifetime_s - min(RENEWED_BEFORE_S, lifetime_s * _RENEWED_BEFORE_SHARE)
            self._renewed_at_s = begun_s + renewed_after_s
            self._used_until_s = begun_s + lifetime_s - min(_UNUSED_S, lifetime_s * _UNUSED_SHARE)
        finally:
            self._task = None
