# ruff: noqa: F811
from typing import Any

from legato_protos.metering.v1 import outbox_pb2 as metering_pb
from services.auth.notices.rules.loop import NoticeLoop
from services.auth.service import AuthService
from services.chassis.database.database import Database
from tests.services.auth.notices.receiver import Receiver
from tests.services.auth.notices.rules.test_delivery import Owner, owner  # noqa: F401


async def test_one_part_that_fails_does_not_stop_the_others(
    auth: AuthService, owner: Owner, receiver: Receiver, database: Database, log: Any
) -> None:
    class Away:
        async def list_pending(self) -> metering_pb.ListPendingResponse:
            raise ConnectionError

    away: Any = Away()
    await owner.add_webhook(receiver)
    await owner.call("SendTestNotice")
    loop = NoticeLoop(auth.parts, auth.notice_loop._recorder, auth.notice_delivery, away)
    await loop.run_once()
    assert [body["kind"] for body in receiver.bodies] == ["test"]
