"""Runs the router (`python -m services.router`), which sends each chat to a model of its class."""

import asyncio
import contextlib
import signal
import time

from services.chassis.access_tokens import AccessTokenVerifier
from services.chassis.load.prompt_memory import open_prompt_memory, show_prompt_memory
from services.chassis.process import memory
from services.chassis.process.run import run, tracing_to
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.certificates import open_certificates
from services.chassis.rpc.server import RpcServer, private_listen, stop_asked
from services.chassis.settings import load
from services.chassis.telemetry.http_port import serve_operations
from services.chassis.telemetry.log import open_log
from services.chassis.telemetry.metrics import new_registry, show_certificate, show_exchanges
from services.chassis.timing.deadlines import SystemClock
from services.router.completion import Completions
from services.router.grounding.opening import open_grounding
from services.router.grounding.settings import GroundingSettings
from services.router.local_model import socket_path
from services.router.metrics import show_chats, show_model_states
from services.router.prompts.tokens import open_vocabulary
from services.router.providers import open_provider
from services.router.providers.base import ProviderEnvironment
from services.router.routing.model_states import ModelStates, ProviderPool
from services.router.routing.reload import Reload
from services.router.routing.routes import load_routes
from services.router.routing.targets import Targets
from services.router.servicers.grounding import GroundingAdminServicer
from services.router.servicers.route_admin import RouteAdminServicer
from services.router.servicers.router import RouterServicer
from services.router.settings import RouterSettings

STOP_GRACE_S = 0.5


async def main() -> None:
    settings, grounding_settings = load(RouterSettings), load(GroundingSettings)
    found = load_routes(settings.routes, timeouts=settings.timeouts)
    # Before the first chat waits for it.
    open_vocabulary()
    log = open_log("router", debug=settings.debug)
    listen = settings.router_listen or private_listen(settings.data, "router")
    socket = socket_path(settings.data, settings.local_model_socket)
    provider_pool = ProviderPool(
        lambda route, timeouts: open_provider(route, ProviderEnvironment(timeouts, socket)), log
    )
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(provider_pool.aclose)
        clock, registry = SystemClock(), new_registry()
        await opened.enter_async_context(serve_operations(settings.router_metrics_listen, registry, log))
        local_places = settings.local_model_parallel + settings.local_model_queue
        model_states = ModelStates(found, provider_pool, clock, log, settings.upstream_queueing_s, local_places)
        opened.push_async_callback(model_states.aclose)
        show_model_states(model_states, registry)
        targets = Targets(model_states, log, settings.upstream_attempts, tells_traces=settings.trace_upstream)
        grounding = await open_grounding(grounding_settings, clock, log, opened)
        prompt_memory = open_prompt_memory(settings.prompt_bytes)
        completions = Completions(model_states, targets, clock, log, grounding.grounding, prompt_memory)
        show_chats(completions, registry)
        show_prompt_memory(registry, prompt_memory)
        tracer = opened.enter_context(tracing_to(settings.otlp_endpoint, "router", clock, log, registry))
        servicer = RouterServicer(completions, log, tracer)
        show_exchanges(registry, {"edge": servicer.message_items})
        reload = Reload(settings.routes, settings.timeouts, model_states, log)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.on_signal)
        servicers = [
            servicer,
            RouteAdminServicer(model_states, reload),
            GroundingAdminServicer(grounding.library, grounding.intake, grounding.config, completions.preview, log),
        ]
        certificates = open_certificates(settings.tls_ca, settings.tls_cert, settings.tls_key, log)
        show_certificate(registry, certificates)
        server = RpcServer(
            listen,
            servicers,
            log,
            certificates,
            health_listen=settings.router_health_listen,
            insecure_tcp=settings.insecure_tcp,
            access=AccessCheck(AccessTokenVerifier(settings.access_token_public_keys), lambda: time.time_ns() // 1000),
            console_listen=settings.router_console_listen,
            console_role=settings.console_role,
        )
        stop = stop_asked()
        await server.start()
        log.info("service.started", listen=listen)
        memory.settle()
        await stop.wait()
        await server.announce_shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_delay_s + settings.drain_s):
                await servicer.drain(settings.drain_delay_s)
        await server.stop(STOP_GRACE_S)
        log.info("service.stopped")


if __name__ == "__main__":
    run("router", main)
