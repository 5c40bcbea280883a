"""Pools the providers' connections: shared by models, and closed after the last chat that uses them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from services.chassis.telemetry.log import Log
from services.router.providers.base import Provider, ProviderError, ProviderRoute, Timeouts


@dataclass(frozen=True, slots=True)
class PooledProviderKey:
    """The key of a pooled provider: models share its connections unless their timeouts differ."""

    route: ProviderRoute
    timeouts: Timeouts


class PooledProvider:
    """The connections to one provider, with a count of their users."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._users = 0
        self._on_unused: Callable[[], None] | None = None

    def acquire(self) -> None:
        """Adds a chat that uses it, or may use it."""
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        if self._on_unused is not None and not self._users:
            self._on_unused()

    def when_unused(self, do: Callable[[], None]) -> None:
        """Runs `do` when the last user has released it, or now if there is none."""
        self._on_unused = do
        if not self._users:
            do()


class ProviderPool:
    def __init__(self, open_provider: Callable[[ProviderRoute, Timeouts], Provider], log: Log) -> None:
        self._open_provider = open_provider
        self._log = log
        self._pooled: dict[PooledProviderKey, PooledProvider] = {}
        # Removed from the routes but still used by chats.
        self._retired: set[PooledProvider] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def replace(self, wanted: Iterable[PooledProviderKey]) -> Mapping[PooledProviderKey, PooledProvider]:
        """Opens the providers that are new and retires those no longer wanted."""
        wanted = set(wanted)
        opened = {
            key: PooledProvider(self._open_provider(key.route, key.timeouts))
            for key in wanted
            if key not in self._pooled
        }
        for key in self._pooled.keys() - wanted:
            self._retire(self._pooled.pop(key))
        self._pooled.update(opened)
        for key, pooled in opened.items():
            self.do(self._warm(key.route.name, pooled))
        return dict(self._pooled)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pooled in (*self._pooled.values(), *self._retired):
            await pooled.provider.aclose()

    async def _warm(self, name: str, pooled: PooledProvider) -> None:
        """Opens a connection ahead of the first chat. A failure is only logged; chats will find out."""
        pooled.acquire()
        try:
            await pooled.provider.warm()
        except ProviderError as error:
            self._log.warning("provider.not_warmed", provider=name, reason=error.what)
        finally:
            pooled.release()

    def _retire(self, pooled: PooledProvider) -> None:
        self._retired.add(pooled)
        pooled.when_unused(lambda: self.do(self._close(pooled)))

    async def _close(self, pooled: PooledProvider) -> None:
        self._retired.discard(pooled)
        await pooled.provider.aclose()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a background task, which is cancelled when the pool closes."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
