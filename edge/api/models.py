"""GET /v1/models: the model classes that the key may use."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict

from edge.api.access import Edge, ModelsKey
from edge.api.description import errors
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


@router.get("", summary="List the classes that the key may use", operation_id="listModels", responses=errors())
async def list_models(principal: ModelsKey, edge: Edge) -> ModelList:
    """Lists all classes, unless the key or its account is limited to some."""
    return ModelList(data=[_to_model(model) for model in edge.models.usable(principal).values()])


@router.get(
    "/{model_id}",
    summary="Describe a class",
    operation_id="getModel",
    responses=errors(Reason.MODEL_NOT_FOUND, Reason.NOT_FOUND),
)
async def get_model(
    model_id: Annotated[str, Path(description="The class.", examples=["mezzo"])], principal: ModelsKey, edge: Edge
) -> Model:
    """A class that the key may not use does not exist for it."""
    return _to_model(edge.models.find(model_id, principal))


def _to_model(model: router_messages.Model) -> Model:
    return Model(id=model.model_id, created=model.create_time.seconds, owned_by=model.owner)
