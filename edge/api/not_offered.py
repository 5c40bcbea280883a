"""Endpoints of OpenAI's API that clients may call and that are not offered."""

from typing import Annotated

from fastapi import APIRouter, Security

from edge.api.access import identified_key
from edge.api.description import errors
from edge.backends.auth import Principal
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

router = APIRouter(prefix="/v1", tags=["Not offered"], responses=errors(Reason.ENDPOINT_NOT_OFFERED, needs_scope=False))


@router.post("/embeddings", summary="Refused: embeddings are not offered", operation_id="createEmbedding")
@router.post("/completions", summary="Refused: use chat completions", operation_id="createCompletion")
async def refuse(principal: Annotated[Principal, Security(identified_key)]) -> None:
    raise LegatoError(Reason.ENDPOINT_NOT_OFFERED, Sentence("endpoint_not_offered"))
