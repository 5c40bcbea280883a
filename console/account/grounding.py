"""Reads what an account's chats may be grounded in: what the service offers, and what the account uses of it."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeVar

from starlette.responses import Response

from console.web.visit import Visit
from legato_protos.auth.v1 import auth_pb2
from legato_protos.router.v1 import grounding_pb2 as pb
from services.chassis.errors import LegatoError, Reason

AnswerT = TypeVar("AnswerT")


class SourceState(StrEnum):
    ON = "on"
    # By the account's own setting.
    OFF = "off"
    NOT_CONFIGURED = "not-configured"


@dataclass(frozen=True, slots=True)
class GroundingSources:
    config: pb.GroundingConfig
    account: auth_pb2.Account

    def state_of(self, source: Literal["memory", "attachments", "search"]) -> SourceState:
        if not self.config.HasField(source):
            return SourceState.NOT_CONFIGURED
        return SourceState.ON if getattr(self.account, source) else SourceState.OFF


async def read_unless_away(
    visit: Visit, listing: Awaitable[AnswerT], template: str
) -> tuple[AnswerT, GroundingSources] | Response:
    """Returns what is listed, with its sources; or, where the router does not answer, the page without them."""
    try:
        return await asyncio.gather(listing, read_sources(visit))
    except LegatoError as error:
        if error.reason is not Reason.UNAVAILABLE:
            raise
        return visit.render(template, 503, sources=None)


async def read_sources(visit: Visit) -> GroundingSources:
    reading = visit.router.grounding.GetGroundingConfig(pb.GetGroundingConfigRequest())
    response, account = await asyncio.gather(reading, visit.read_account())
    return GroundingSources(response.config, account)


async def if_configured(answer: Awaitable[AnswerT]) -> AnswerT | None:
    """Returns the router's answer; None if the service is not configured for what was asked."""
    try:
        return await answer
    except LegatoError as error:
        if error.reason is not Reason.REQUEST_INVALID or error.param:
            raise
        return None
