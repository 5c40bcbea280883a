"""`python -m services.metering`, as a process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protos.metering.v1 import metering_pb2 as pb
from protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub
from services.chassis.channel import open_sync_channel

ROOT = Path(__file__).parents[3]
PATIENCE_S = 30


def start(data: Path, **settings: str) -> "subprocess.Popen[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    return subprocess.Popen(
        [sys.executable, "-m", "services.metering"],
        cwd=ROOT,
        env=clean | {"LEGATO_DATA": str(data)} | settings,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def admin(socket_folder: Path) -> Iterator[CreditAdminServiceStub]:
    with open_sync_channel(f"unix:{socket_folder}/run/metering.sock") as channel:
        yield CreditAdminServiceStub(channel)


def stop(process: "subprocess.Popen[str]") -> tuple[int, str]:
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


def balance_after_grant(admin: CreditAdminServiceStub, grant_id: str) -> int:
    request = pb.GrantCreditsRequest(grant_id=grant_id, account_id="acct_a", amount_nanos=5)
    return admin.GrantCredits(request, wait_for_ready=True, timeout=PATIENCE_S).balance.balance_nanos


def test_balances_outlive_an_orderly_end(socket_folder: Path, admin: CreditAdminServiceStub) -> None:
    for number in (1, 2):
        process = start(socket_folder)
        assert balance_after_grant(admin, f"grant-{number}") == 5 * number
        code, said = stop(process)
        assert code == 0
        assert "service.stopped" in said
    assert (socket_folder / "run").stat().st_mode & 0o777 == 0o700


def test_every_wrong_setting_is_named_and_nothing_is_opened(tmp_path: Path) -> None:
    process = start(tmp_path / "data", LEGATO_REQUESTS_PER_MINUTE="0", LEGATO_SWEEP_INTERVAL_S="soon")
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert [line.split(":")[0] for line in said.splitlines()] == [
        "LEGATO_REQUESTS_PER_MINUTE", "LEGATO_SWEEP_INTERVAL_S",
    ]  # fmt: skip
    assert not (tmp_path / "data").exists()


def test_wrong_prices_are_named(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text("[classes.mezzo]\ninput = 3\n")
    process = start(tmp_path / "data", LEGATO_PRICES=str(tmp_path / "prices.toml"))
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "classes.mezzo.input" in said
    assert "classes.forte: is missing" in said
    assert "Traceback" not in said


def test_database_that_cannot_be_reached_is_named_in_one_line(tmp_path: Path) -> None:
    process = start(tmp_path, LEGATO_DATABASE_URL="postgresql://legato@/legato?host=/nowhere")
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert said.splitlines() == [
        "metering: the database cannot be reached or written (LEGATO_DATABASE_URL, LEGATO_DATA)"
    ]
