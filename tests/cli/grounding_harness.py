"""A router's grounding on a real server and a real file, beside an auth that knows one account."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from cli.main import legato
from legato_protos.auth.v1 import accounts_pb2_grpc, auth_pb2
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.server import RpcServer
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.router.grounding.assembly import open_grounding
from services.router.grounding.servicers.library import GroundingAdminServicer
from services.router.grounding.settings import GroundingSettings

ACCOUNT = "acct_1"


class Accounts(accounts_pb2_grpc.AccountAdminServiceServicer):
    async def GetAccount(self, request: Any, context: Any) -> auth_pb2.GetAccountResponse:
        if request.account_id != ACCOUNT:
            raise LegatoError(Reason.NOT_FOUND, Sentence.verbatim("There is no such account."))
        return auth_pb2.GetAccountResponse(account=auth_pb2.Account(account_id=ACCOUNT))


async def _no_models(chat: Any) -> Any:
    raise LegatoError(Reason.UNAVAILABLE, Sentence.verbatim("This router has no models."))


class GroundingHarness:
    def __init__(self, address: str) -> None:
        self.address = address

    async def run(self, *arguments: str, stdin: str | bytes | None = None) -> Result:
        runner = CliRunner(env={"LEGATO_AUTH_ADDRESS": self.address, "LEGATO_ROUTER_ADDRESS": self.address})
        return await asyncio.to_thread(runner.invoke, legato, [*arguments, "--json"], input=stdin)


@asynccontextmanager
async def grounding_harness(folder: Path, log: Log, **settings: Any) -> AsyncIterator[GroundingHarness]:
    given = {"memory": True, "attachments": True, "grounding_key": f"1:{'ab' * 32}", **settings}
    async with AsyncExitStack() as opened:
        grounding = open_grounding(GroundingSettings(data=folder, **given), SystemClock(), log, opened)
        admin = GroundingAdminServicer(grounding, _no_models, log)
        servicers = [admin, Accounts()]  # type: ignore[abstract]
        server = RpcServer("127.0.0.1:0", servicers, log, insecure_tcp=True)
        await server.start()
        try:
            yield GroundingHarness(f"127.0.0.1:{server.port}")
        finally:
            await server.stop(0)
