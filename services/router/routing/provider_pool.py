"""The connections to providers: shared by the models behind them, and closed after the last chat that uses them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from services.chassis.telemetry.log import Log
from services.router.providers.base import Provider, ProviderError, ProviderRoute, Timeouts


@dataclass(frozen=True, slots=True)
class PooledProviderKey:
    """Models of one provider share its connections, unless the file gives them time limits of their own."""

    route: ProviderRoute
    timeouts: Timeouts


class PooledProvider:
    """To one provider."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._users = 0
        self._on_unused: Callable[[], None] | None = None

    def acquire(self) -> None:
        """For a chat that uses it, or may."""
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        if self._on_unused is not None and not self._users:
            self._on_unused()

    def when_unused(self, do: Callable[[], None]) -> None:
        """Nobody new will hold it: once those who do have let go, at the latest now."""
        self._on_unused = do
        if not self._users:
            do()


class ProviderPool:
    def __init__(self, open_provider: Callable[[ProviderRoute, Timeouts], Provider], log: Log) -> None:
        self._open_provider = open_provider
        self._log = log
        self._pooled: dict[PooledProviderKey, PooledProvider] = {}
        # Of providers that are gone from the routes, while chats still use them.
        self._retired: set[PooledProvider] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def replace(self, wanted: Iterable[PooledProviderKey]) -> Mapping[PooledProviderKey, PooledProvider]:
        """Opens what is wanted and not there yet, and retires what is there and no longer wanted."""
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
        """So that the first chat need not wait for a connection. Whether it works is for chats to find out."""
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
        """Meanwhile; ended with the pool."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
