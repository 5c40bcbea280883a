"""The RPCs of operators: models with their state, trials and outcomes, and reloading the routes."""

import asyncio
from functools import partial

from legato_protos.router.v1 import router_pb2 as pb
from legato_protos.router.v1 import router_pb2_grpc as pb_grpc
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.admission import NO_LIMIT
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence
from services.chassis.settings import SettingsError
from services.router.models.states import ModelStates, WeightedModel
from services.router.routes.diff import find_changes
from services.router.routes.reload import Reload
from services.router.routes.routes import RoutesMistaken
from services.router.trials.canary import Canaries
from services.router.trials.outcomes import OutcomesByClass
from services.rules.model_classes import CLASSES


class RouteAdminServicer(pb_grpc.RouteAdminServiceServicer):
    def __init__(
        self, model_states: ModelStates, reload: Reload, outcomes: OutcomesByClass, canaries: Canaries
    ) -> None:
        self._model_states = model_states
        self._reload = reload
        self._outcomes = outcomes
        self._canaries = canaries

    async def ReloadRoutes(self, request: pb.ReloadRoutesRequest, context: Context) -> pb.ReloadRoutesResponse:
        try:
            self._reload.now(request.version)
        except SettingsError as error:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence.verbatim(str(error))) from None
        return pb.ReloadRoutesResponse(targets=self._targets(), version=self._model_states.routes.version)

    async def ListTargets(self, request: pb.ListTargetsRequest, context: Context) -> pb.ListTargetsResponse:
        listed = partial(pb.ListTargetsResponse, targets=self._targets(), version=self._model_states.routes.version)
        if not request.compares_file:
            return listed()
        try:
            routes = self._reload.load()
        except SettingsError as error:
            return listed(file_mistakes=str(error).splitlines())
        return listed(file_version=routes.version, changes=find_changes(self._model_states.routes, routes))

    async def ListOutcomes(self, request: pb.ListOutcomesRequest, context: Context) -> pb.ListOutcomesResponse:
        kept = {class_id: self._outcomes.by_class.get(class_id) for class_id in CLASSES}
        return pb.ListOutcomesResponse(
            outcomes=[
                to_message(
                    pb.ModelOutcomes,
                    model,
                    class_id=class_id,
                    errors=model.errors,
                    finish_reasons=model.finish_reasons,
                )
                for class_id, outcomes in kept.items()
                if outcomes is not None
                for model in outcomes.models
            ]
        )

    async def DiffRoutes(self, request: pb.DiffRoutesRequest, context: Context) -> pb.DiffRoutesResponse:
        try:
            routes = await asyncio.to_thread(self._reload.read, request.text)
        except RoutesMistaken as error:
            return pb.DiffRoutesResponse(mistakes=error.mistakes)
        changes = find_changes(self._model_states.routes, routes)
        return pb.DiffRoutesResponse(version=routes.version, changes=changes)

    async def ResumeCanary(self, request: pb.ResumeCanaryRequest, context: Context) -> pb.ResumeCanaryResponse:
        self._canaries.resume(request.class_id)
        return pb.ResumeCanaryResponse()

    def _targets(self) -> list[pb.Target]:
        targets = []
        for class_id in CLASSES:
            if (listed := self._canaries.listed(class_id)) is not None:
                canary, member = listed
                shown = pb.Canary(percent=canary.route.percent, is_rolled_back=canary.is_rolled_back)
                targets.append(self._to_target(class_id, 0, member, shown))
            for tier, members in enumerate(self._model_states.by_class[class_id].tiers, start=1):
                targets += (self._to_target(class_id, tier, member) for member in members)
        return targets

    def _to_target(self, class_id: str, tier: int, member: WeightedModel, canary: pb.Canary | None = None) -> pb.Target:
        model_state = member.model_state
        gate, breaker, target = model_state.saturation.gate, model_state.breaker, model_state.target
        share = model_state.saturation.share
        route = self._model_states.routes.providers[target.provider]
        return to_message(
            pb.Target,
            *(target, breaker, gate, member, model_state.cut_prompts, model_state.recent_health),
            class_id=class_id,
            tier=tier,
            breaker_state=pb.BreakerState.Value(f"BREAKER_STATE_{breaker.state.name}"),
            share=None if share is None else share.places,
            limit=int(gate.limit) if gate.limit < NO_LIMIT else None,
            canary=canary,
            promise_until=None if route.until is None else route.until.isoformat(),
            credentials=None if route.credentials is None else str(route.credentials),
            credentials_failure=self._model_states.credentials_failure(target.provider),
            learned=model_state.provider.learned(target.model_name, target.abilities),
            other_region=self._model_states.other_regions.get(target.provider),
        )
