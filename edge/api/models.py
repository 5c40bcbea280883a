"""GET /v1/models and GET /v1/models/{id}: the classes on offer, as the router lists them."""

import asyncio
from typing import Any

from edge.backends.auth import Principal
from edge.backends.exchanges import RouterReplica
from protos.router.v1 import router_pb2 as router
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.rpc.channel import errors_of
from services.chassis.rpc.replicas import Replicas

AUTO = "auto"
REFRESH_EVERY_S = 30.0
ASK_AGAIN_AFTER_S = 0.1
ASK_TIMEOUT_S = 5.0


class Models:
    def __init__(self, routers: Replicas[RouterReplica]) -> None:
        self._routers = routers
        self._objects: dict[str, dict[str, Any]] = {}
        self._refresher: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()

    def start(self) -> None:
        self._refresher = asyncio.create_task(self._keep_fresh())

    async def close(self) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.gather(self._refresher, return_exceptions=True)

    async def known(self) -> None:
        """Returns when the router has answered for the first time."""
        await self._heard.wait()

    def list_object(self) -> dict[str, Any]:
        return {"object": "list", "data": list(self._known().values())}

    def model_object(self, model_id: str) -> dict[str, Any]:
        model = self._known().get(model_id)
        if model is None:
            raise LegatoError(Reason.MODEL_NOT_FOUND, "There is no such model.", param="model")
        return model

    def class_for(self, model_id: str, principal: Principal) -> str:
        """Returns the class that serves a chat for `model_id`."""
        known = self._known()
        if model_id not in known:
            raise LegatoError(
                Reason.MODEL_UNKNOWN, f"There is no such model. Use one of {', '.join(known)}.", param="model"
            )
        return principal.preferred_class if model_id == AUTO else model_id

    def _known(self) -> dict[str, dict[str, Any]]:
        if not self._objects:
            raise unavailable("The router")
        return self._objects

    async def _keep_fresh(self) -> None:
        while True:
            try:
                with errors_of("The router"):
                    stub = self._routers.least_loaded().stub
                    models = (await stub.ListModels(router.ListModelsRequest(), timeout=ASK_TIMEOUT_S)).models
            except LegatoError:
                # The previous list stays valid; without one, the next attempt follows soon.
                await asyncio.sleep(REFRESH_EVERY_S if self._objects else ASK_AGAIN_AFTER_S)
                continue
            self._objects = {model.model_id: _model_object(model) for model in models}
            self._heard.set()
            await asyncio.sleep(REFRESH_EVERY_S)


async def list_models(*, models: Models) -> dict[str, Any]:
    return models.list_object()


async def get_model(*, models: Models, model_id: str) -> dict[str, Any]:
    return models.model_object(model_id)


def _model_object(model: router.Model) -> dict[str, Any]:
    return {
        "id": model.model_id,
        "object": "model",
        "created": model.create_time.seconds,
        "owned_by": model.owner,
    }
