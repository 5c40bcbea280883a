"""GET /v1/models: the model classes that the key may use."""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec
from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict

from edge.api.access import Edge, ModelsKey
from edge.api.description import errors
from edge.messages.errors import is_for_messages, request_id_header
from legato_protos.router.v1 import router_pb2 as router_messages
from services.chassis.errors import Reason

# Clients encode a slash in a model's id, which is unknown here like any other.
MODELS_PATH: Final = b"/v1/models/"

router = APIRouter(prefix="/v1/models", tags=["Models"])


class Model(BaseModel):
    """A class of models."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"id": "mezzo", "object": "model", "created": 1763294400, "owned_by": "legato"},
        }
    )

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class ModelList(BaseModel):
    """The classes on offer."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.get(
    "",
    summary="List the classes that the key may use",
    operation_id="listModels",
    responses=errors(),
    response_model=ModelList,
)
async def list_models(request: Request, principal: ModelsKey, edge: Edge) -> ModelList | Response:
    """Lists all classes, unless the key or its account is limited to some. With an `anthropic-version` header the
    response has the form of Anthropic's API."""
    models = edge.models.usable(principal).values()
    if is_for_messages(request.scope):
        return _listed_for_messages(request, map(_model_info, models))
    return ModelList(data=[_to_model(model) for model in models])


@router.get(
    "/{model_id}",
    summary="Describe a class",
    operation_id="getModel",
    responses=errors(Reason.MODEL_NOT_FOUND, Reason.NOT_FOUND),
    response_model=Model,
)
async def get_model(
    request: Request,
    model_id: Annotated[str, Path(description="The class.", examples=["mezzo"])],
    principal: ModelsKey,
    edge: Edge,
) -> Model | Response:
    """A class that the key may not use does not exist for it. With an `anthropic-version` header the response has the
    form of Anthropic's API."""
    model = edge.models.find(model_id, principal)
    return _for_messages(request, _model_info(model)) if is_for_messages(request.scope) else _to_model(model)


def _to_model(model: router_messages.Model) -> Model:
    return Model(id=model.model_id, created=model.create_time.seconds, owned_by=model.owner)


def _model_info(model: router_messages.Model) -> dict[str, object]:
    """Renders a class as Anthropic's clients read it."""
    return {
        "type": "model",
        "id": model.model_id,
        "display_name": model.model_id.capitalize(),
        "created_at": model.create_time.ToJsonString(),
        "lifecycle": "active",
        # Unknown of `auto`, which is any of the others.
        "max_input_tokens": model.context_tokens or None,
        "max_tokens": model.max_output_tokens or None,
    }


def _listed_for_messages(request: Request, infos: Iterable[dict[str, object]]) -> Response:
    data = [*infos]
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return _for_messages(request, {"data": data, "has_more": False, **ends})


def _for_messages(request: Request, body: dict[str, object]) -> Response:
    response = Response(msgspec.json.encode(body), media_type="application/json")
    response.raw_headers += request_id_header(request.state.request_id)
    return response
