"""Reads what an account's chats may be grounded in: what the service offers, and what the account uses of it."""

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from console.web.visit import Visit
from protos.auth.v1 import auth_pb2
from protos.router.v1 import grounding_pb2 as pb
from services.chassis.errors import LegatoError, Reason


class SourceState(StrEnum):
    ON = "on"
    # By the account's own setting.
    OFF = "off"
    NOT_CONFIGURED = "not-configured"


@dataclass(frozen=True, slots=True)
class GroundingSources:
    config: pb.GroundingConfig
    account: auth_pb2.Account

    @property
    def memory(self) -> SourceState:
        return _state(self.config.HasField("memory"), self.account.memory)

    @property
    def attachments(self) -> SourceState:
        return _state(self.config.HasField("attachments"), self.account.attachments)

    @property
    def search(self) -> SourceState:
        return _state(self.config.HasField("search"), self.account.search)


def _state(is_configured: bool, is_on: bool) -> SourceState:
    if not is_configured:
        return SourceState.NOT_CONFIGURED
    return SourceState.ON if is_on else SourceState.OFF


def require_role(visit: Visit) -> None:
    """Raises for users whose role has no notes and documents."""
    if not visit.who.may_keep_notes:
        raise LegatoError(Reason.ROLE_MISSING, "Your role in this account does not allow this.")


async def read_sources(visit: Visit) -> GroundingSources:
    config, account = await asyncio.gather(_read_config(visit), visit.read_account())
    return GroundingSources(config, account)


async def _read_config(visit: Visit) -> pb.GroundingConfig:
    request = pb.GetGroundingConfigRequest()
    response = await visit.router.grounding.GetGroundingConfig(request)
    return response.config


def is_not_configured(error: LegatoError) -> bool:
    """Returns whether the router refused a call because the service is not configured for it."""
    return error.reason is Reason.REQUEST_INVALID and not error.param
