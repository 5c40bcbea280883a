"""The model classes that a key may use, as the routers list them."""

import asyncio

from edge.backends.auth import Principal
from edge.backends.exchanges import RouterReplica
from legato_protos.router.v1 import router_pb2 as router
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.rpc.channel import errors_of
from services.chassis.rpc.replicas import Replicas
from services.chassis.sentence import Sentence
from services.rules.model_classes import AUTO

REFRESH_EVERY_S = 30.0
ASK_AGAIN_AFTER_S = 0.1
ASK_TIMEOUT_S = 5.0


class ModelCatalog:
    def __init__(self, routers: Replicas[RouterReplica]) -> None:
        self._routers = routers
        self._models: dict[str, router.Model] = {}
        self._heard = asyncio.Event()

    async def known(self) -> None:
        """Returns when the router has answered for the first time."""
        await self._heard.wait()

    def usable(self, principal: Principal) -> dict[str, router.Model]:
        """Returns the models that exist for this key: `auto`, if it may use any class, and those classes."""
        known = self._models
        if not known:
            raise unavailable("The router")
        if principal.allowed_classes is None:
            return known
        usable = {model_id: model for model_id, model in known.items() if principal.may_use(model_id)}
        return {AUTO: known[AUTO], **usable} if usable and AUTO in known else usable

    def find(self, model_id: str, principal: Principal) -> router.Model:
        model = self.usable(principal).get(model_id)
        if model is None:
            raise LegatoError(Reason.MODEL_NOT_FOUND, Sentence("model_unknown"), param="model")
        return model

    def class_for(self, model_id: str, principal: Principal) -> str:
        """Returns the class that serves a chat for `model_id`."""
        usable = self.usable(principal)
        if model_id not in usable:
            hint = Sentence("model_unknown_use", models=", ".join(usable))
            raise LegatoError(Reason.MODEL_UNKNOWN, hint if usable else Sentence("model_unknown"), param="model")
        return principal.preferred_class if model_id == AUTO else model_id

    async def keep_fresh(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                with errors_of("The router"):
                    stub = self._routers.least_loaded().stub
                    models = (await stub.ListModels(router.ListModelsRequest(), timeout=ASK_TIMEOUT_S)).models
            except LegatoError:
                # The previous list stays valid; without one, the next attempt follows soon.
                await asyncio.sleep(REFRESH_EVERY_S if self._models else ASK_AGAIN_AFTER_S)
                continue
            self._models = {model.model_id: model for model in models}
            self._heard.set()
            await asyncio.sleep(REFRESH_EVERY_S)
