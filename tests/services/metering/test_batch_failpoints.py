"""A process that is made to die around its commit, and what its database has then."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import sqlalchemy as sa

from protos.metering.v1 import metering_pb2 as pb
from protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub
from services.chassis.process import failpoints
from services.chassis.rpc.channel import open_sync_channel
from services.metering.batch_failpoints import reach
from tests.services.metering.samples import reserve, settle

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Path]:
    failpoints.watch(str(tmp_path))
    yield tmp_path
    failpoints.watch(None)


def test_batch_comes_once_to_the_place_of_each_kind_of_operation(orders: Path) -> None:
    for name in ("metering.reserve.read", "metering.settle.read", "metering.settle.written"):
        (orders / name).write_text("3")
    reach("read", [reserve(1), settle(1), reserve(2)])
    left = {order.name: order.read_text() for order in orders.iterdir()}
    assert left == {"metering.reserve.read": "2", "metering.settle.read": "2", "metering.settle.written": "3"}


@pytest.mark.parametrize(("step", "balances"), [("read", []), ("written", []), ("committed", [5])])
def test_only_what_was_committed_outlives_the_process(socket_folder: Path, step: str, balances: list[int]) -> None:
    orders = socket_folder / "failpoints"
    orders.mkdir()
    (orders / f"metering.grant.{step}").write_text("1")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    settings = {"LEGATO_DATA": str(socket_folder), failpoints.VARIABLE: str(orders)}
    metering = subprocess.Popen(
        [sys.executable, "-m", "services.metering"], cwd=ROOT, env=clean | settings, stderr=subprocess.DEVNULL
    )
    request = pb.GrantCreditsRequest(operation_id="grant-1", account_id="acct_a", amount_nanos=5)
    with open_sync_channel(f"unix:{socket_folder}/run/metering.sock") as channel, pytest.raises(grpc.RpcError):
        CreditAdminServiceStub(channel).GrantCredits(request, wait_for_ready=True, timeout=PATIENCE_S)
    assert metering.wait(PATIENCE_S) == -signal.SIGKILL
    engine = sa.create_engine(f"sqlite:///{socket_folder}/metering.db")
    with engine.connect() as connection:
        assert list(connection.exec_driver_sql("SELECT balance_nanos FROM accounts").scalars()) == balances
    engine.dispose()
