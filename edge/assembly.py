"""Builds the edge from its parts, and closes them again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from edge.access.model_catalog import ModelCatalog
from edge.access.principals import Principals
from edge.access.saturation import EdgeSaturation
from edge.api.app import EdgeApp
from edge.api.cors import EdgeCorsMiddleware
from edge.api.early_refusals import EarlyRefusals
from edge.backends.exchanges import Backends
from edge.backends.outage_wait import OutageWait
from edge.backends.position import EdgePosition, parse_position
from edge.billing.checkpoints import Checkpoints
from edge.billing.metering import Metering
from edge.billing.recovery import Journals
from edge.chat.chat_metrics import ChatMetrics
from edge.chat.edge_state import EdgeState
from edge.metrics import show_edge
from edge.settings import EdgeSettings
from edge.wire.origins import parse_origins
from services.chassis.http.addresses import Addresses
from services.chassis.http.connection_limit import most_connections
from services.chassis.load.fair_budget import FairBudget
from services.chassis.load.prompt_memory import open_prompt_memory, show_prompt_memory
from services.chassis.process.serving import Process
from services.chassis.rpc.subset import Subset
from services.chassis.telemetry.metrics import show_exchanges

# Longer than healthy services take to answer, and shorter than a client waits for a connection.
BACKENDS_TIMEOUT_S: Final = 5.0


@dataclass(slots=True, kw_only=True)
class Assembly:
    app: EdgeApp
    early_refusals: EarlyRefusals
    edge: EdgeState
    services: Backends
    journals: Journals
    # Returns whether the process is shutting down.
    is_leaving: Callable[[], bool]
    # Recovery is done, and every service has answered once.
    is_complete: bool = False

    async def prepare(self) -> None:
        """Settles what earlier edges left behind, and waits for the other services, so that no request is refused while
        they start. The wait has a timeout: while a service is down, requests to it are refused."""
        await self.journals.recover(self.edge.metering)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BACKENDS_TIMEOUT_S):
                await self._services_known()

    async def complete(self) -> None:
        """Waits until router and auth have answered once. Each request waits for metering by itself."""
        await self._services_known()
        self.is_complete = True

    async def _services_known(self) -> None:
        await self.edge.models.known()
        await self.edge.principals.known()

    def missing(self) -> list[str]:
        """Returns what keeps it from serving; empty if ready. Requests wait for a service that is away, which other
        edges miss too; an edge that reaches none of them is cut off, and others may not be."""
        states = {"leaving": self.is_leaving(), "starting": not self.is_complete}
        away = self.away()
        is_cut_off = len(away) == len(self.services.usable_replicas())
        return [*(state for state, is_so in states.items() if is_so), *(away if is_cut_off else ())]

    def away(self) -> list[str]:
        """Returns the services that it cannot reach."""
        return [name for name, usable in self.services.usable_replicas().items() if not usable]


@contextlib.asynccontextmanager
async def assembled(settings: EdgeSettings, process: Process) -> AsyncIterator[Assembly]:
    clock, log, registry = process.clock, process.log, process.registry
    position = EdgePosition(parse_position(settings.edge_position), settings.edge_peers, settings.edge_port, log)
    subset = Subset(settings.router_subset, position.find, settings.zone)
    services = Backends(process.address_of, clock, log, process.certificates, subset)
    addresses = Addresses(settings.trusted_proxies)
    journals = Journals(settings.journals_folder, log)
    waits = OutageWait(settings.wait_limits)
    edge = EdgeState(
        principals=Principals(services.auths, clock, log, registry, addresses, settings.wrong_keys_per_minute, waits),
        models=ModelCatalog(services.routers),
        metering=Metering(services.meterings, clock, log, waits),
        journal=journals.own,
        routers=services.routers,
        saturation=EdgeSaturation(clock, settings.edge_queueing_s),
        places=FairBudget("A place for another chat", most_connections(settings.edge_connections)),
        prompt_memory=open_prompt_memory(settings.prompt_bytes),
        life_s=settings.stream_life_s,
        keepalive_s=settings.keepalive_s,
        clock=clock,
        log=log,
        metrics=ChatMetrics(registry),
        tracer=process.open_tracer(settings.trace_ratio),
    )
    await services.start()
    edge.principals.start()
    edge.saturation.start()
    tasks = [
        asyncio.create_task(run())
        for run in (
            edge.models.keep_fresh,
            Checkpoints(edge.journal, edge.metering, log).run,
            edge.metering.failures.run,
        )
    ]
    try:
        origins = parse_origins(settings.cors_origins, settings.console_url)
        app = EdgeApp(edge, origins, has_docs=settings.edge_docs)
        assembly = Assembly(
            app=app,
            early_refusals=EarlyRefusals(edge, EdgeCorsMiddleware(app, origins)),
            edge=edge,
            services=services,
            journals=journals,
            is_leaving=lambda: process.is_leaving,
        )
        show_exchanges(registry, services.message_items)
        show_prompt_memory(registry, edge.prompt_memory)
        show_edge(registry, edge, services, waits, assembly.missing)
        yield assembly
        # Answers have ended; their settlements may still be pending.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_s):
                await edge.metering.settled()
                await edge.metering.failures.report()
    finally:
        for task in tasks:
            task.cancel()
        edge.saturation.close()
        await edge.principals.close()
        await services.close()
        journals.close()
