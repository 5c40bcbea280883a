"""Builds the router from its parts."""

from functools import partial

from services.chassis.load.prompt_memory import open_prompt_memory, show_prompt_memory
from services.chassis.process.serving import Process
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.telemetry.metrics import show_exchanges
from services.router.calls.fallback import Targets
from services.router.chat.completion import Completions
from services.router.chat.servicer import RouterServicer
from services.router.grounding.assembly import open_grounding
from services.router.grounding.servicers.content import ContentServicer
from services.router.grounding.servicers.library import GroundingAdminServicer
from services.router.grounding.settings import GroundingSettings
from services.router.local_model import socket_path
from services.router.metrics import show_chats, show_keys, show_model_states, show_outcomes, show_route_file
from services.router.models.fleet_limits import FleetLimits
from services.router.models.states import ModelStates
from services.router.providers import open_provider
from services.router.reasoning.sealed_ids import open_seals
from services.router.routes.key_watch import KeyWatch
from services.router.routes.reload import Reload
from services.router.routes.routes import Routes
from services.router.routes.watch import FleetReports, RouteWatch
from services.router.settings import RouterSettings
from services.router.trials.canary import Canaries
from services.router.trials.outcomes import OutcomesByClass
from services.router.trials.servicer import RouteAdminServicer


class RouterService:
    """The RPCs of the router, and the work that it does beside them."""

    def __init__(
        self, routes: Routes, settings: RouterSettings, grounding_settings: GroundingSettings, process: Process
    ) -> None:
        clock, log, registry, opened = process.clock, process.log, process.registry, process.opened
        model_socket = socket_path(settings.data, settings.local_model_socket)
        open_one = partial(open_provider, local_model_socket=model_socket)
        limits = _open_limits(settings, process)
        local_places = settings.local_model_parallel + settings.local_model_queue
        outcomes, canaries = OutcomesByClass(), Canaries(log)
        model_states = ModelStates(routes, open_one, clock, log, local_places, limits, observers=(outcomes, canaries))
        opened.push_async_callback(model_states.aclose)
        show_model_states(model_states, registry)
        show_outcomes(outcomes, registry)
        canaries.show(registry)
        targets = Targets(
            model_states,
            log,
            settings.upstream_attempts,
            find_models=canaries.find_models,
            sends_traces=settings.trace_upstream,
        )
        grounding = open_grounding(grounding_settings, clock, log, opened, process.full_disks)
        prompt_memory = open_prompt_memory(settings.prompt_bytes)
        seals = open_seals(settings.reasoning_key or grounding_settings.grounding_key)
        completions = Completions(model_states, targets, clock, log, grounding.grounding, prompt_memory, seals)
        show_chats(completions, registry)
        show_prompt_memory(registry, prompt_memory)
        router = RouterServicer(completions, log, process.open_tracer())
        show_exchanges(registry, {"edge": router.message_items})
        reload = Reload(settings.routes, settings.timeouts, model_states, log)
        process.on_hangup(reload.on_signal)
        process.in_background(reload.watch_promises)
        fleet = _open_reports(process) if settings.follow_routes else None
        route_watch = RouteWatch(reload, model_states, log, fleet, lambda: process.is_leaving)
        show_route_file(route_watch, registry)
        process.in_background(route_watch.run)
        key_watch = KeyWatch(model_states, log)
        show_keys(model_states, key_watch, registry)
        process.in_background(key_watch.run)
        previews = GroundingAdminServicer(grounding, completions.preview, log)
        self.drain = router.drain
        content = ContentServicer(grounding, log)
        self.servicers = [router, RouteAdminServicer(model_states, reload, outcomes, canaries), previews, content]


def _open_reports(process: Process) -> FleetReports:
    address = process.address_of("metering")
    metering = ReplicaChannel("Metering", "metering", address, process.certificates, process.log)
    process.opened.push_async_callback(metering.close)
    return FleetReports(metering)


def _open_limits(settings: RouterSettings, process: Process) -> FleetLimits:
    """Opens the limits that all routers share, or those of this one."""
    if not settings.metering_address:
        return FleetLimits(process.clock, process.log)
    metering = ReplicaChannel("Metering", "metering", settings.metering_address, process.certificates, process.log)
    limits = FleetLimits(process.clock, process.log, metering)
    process.opened.push_async_callback(limits.close)
    process.in_background(limits.run)
    return limits
