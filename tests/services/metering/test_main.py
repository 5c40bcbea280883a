"""`python -m services.metering`, as a process."""

import json
import sqlite3
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub
from services.chassis.rpc.channel import open_sync_channel
from tests.support.forked.service_process import ServiceProcess
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until


def start(data: Path, **settings: str) -> ServiceProcess:
    return ServiceProcess("services.metering", {"LEGATO_DATA": str(data)} | settings)


@pytest.fixture
def admin(socket_folder: Path) -> Iterator[CreditAdminServiceStub]:
    with open_sync_channel(f"unix:{socket_folder}/run/metering.sock") as channel:
        yield CreditAdminServiceStub(channel)


def balance_after_grant(admin: CreditAdminServiceStub, grant_id: str) -> int:
    request = pb.GrantCreditsRequest(operation_id=grant_id, account_id="acct_a", amount_nanos=5)
    return admin.GrantCredits(request, wait_for_ready=True, timeout=WAIT_TIMEOUT_S).balance.balance_nanos


def change(data: Path, *statements: str) -> None:
    """Changes the database while it is not used."""
    connection = sqlite3.connect(data / "metering.db")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def read_held_nanos(data: Path) -> list[tuple[int]]:
    connection = sqlite3.connect(data / "metering.db")
    try:
        return connection.execute("SELECT held_nanos FROM spends").fetchall()
    finally:
        connection.close()


def test_balances_outlive_an_orderly_end_and_wrong_counters_are_corrected_at_the_start(
    socket_folder: Path, admin: CreditAdminServiceStub
) -> None:
    for number in (1, 2):
        process = start(socket_folder, LEGATO_METERING_REPLICAS=str(number))
        assert balance_after_grant(admin, f"grant-{number}") == 5 * number
        if number == 2:
            wait_until(lambda: read_held_nanos(socket_folder) == [(0,)])
        code, said = process.stop()
        assert code == 0
        assert "service.stopped" in said
        assert ("spends.recounted" in said) == (number == 2)
        # Of several replicas without a Valkey, each counts for itself, and says so.
        assert ("limits.local" in said) == (number == 2)
        if number == 1:
            change(
                socket_folder,
                "UPDATE accounts SET has_spend_limits = 1",
                "INSERT INTO spends VALUES ('acct_a/', 'acct_a', '', NULL, 100, NULL, 0, 0, 0, 0, 0, 7, '')",
            )
    assert (socket_folder / "run").stat().st_mode & 0o777 == 0o700
    change(socket_folder, "UPDATE schema_version SET oldest_num = '9999', release = '9.0.0'")
    code, said = start(socket_folder).end()
    assert code == 1
    assert said == (
        "metering: the schema metering was migrated by Legato 9.0.0 and is too new for this process: start the newer "
        "release, or restore a backup (docs/upgrade.md)\n"
    )


def test_every_wrong_setting_is_named_and_nothing_is_opened(tmp_path: Path) -> None:
    process = start(
        tmp_path / "data",
        LEGATO_METERING_REPLICAS="0",
        LEGATO_REQUESTS_PER_MINUTE="0",
        LEGATO_TOKENS_PER_MINUTE="-1",
        LEGATO_CONCURRENT_REQUESTS="few",
        LEGATO_SWEEP_INTERVAL_S="soon",
        LEGATO_AUDIT_INTERVAL_S="-1",
        LEGATO_METERING_METRICS_LISTEN="9100",
    )
    code, said = process.end()
    assert code == 2
    assert [line.split(":")[0] for line in said.splitlines()] == [
        "LEGATO_METERING_REPLICAS", "LEGATO_REQUESTS_PER_MINUTE", "LEGATO_TOKENS_PER_MINUTE",
        "LEGATO_CONCURRENT_REQUESTS", "LEGATO_SWEEP_INTERVAL_S", "LEGATO_AUDIT_INTERVAL_S",
        "LEGATO_METERING_METRICS_LISTEN",
    ]  # fmt: skip
    assert not (tmp_path / "data").exists()


def test_wrong_prices_are_named(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text("[classes.mezzo]\ninput = 3\n")
    code, said = start(tmp_path / "data", LEGATO_PRICES=str(tmp_path / "prices.toml")).end()
    assert code == 2
    assert "classes.mezzo.input" in said
    assert "classes.forte: is missing" in said
    assert "Traceback" not in said


def test_database_that_cannot_be_reached_is_named_in_one_line(tmp_path: Path) -> None:
    code, said = start(tmp_path, LEGATO_DATABASE_URL="postgresql://legato@/legato?host=/nowhere").end()
    assert code == 1
    [line] = said.splitlines()
    assert line.startswith("metering: the database cannot be reached or written (LEGATO_DATABASE_URL, LEGATO_DATA): ")
    assert line.endswith("No such file or directory")


def test_metrics_are_served_where_it_was_asked_to(socket_folder: Path, admin: CreditAdminServiceStub) -> None:
    process = start(socket_folder, LEGATO_METERING_METRICS_LISTEN="127.0.0.1:0", LEGATO_AUDIT_INTERVAL_S="0.1")
    address = json.loads(process.wait_for('"operations.started"'))["listen"]
    balance_after_grant(admin, "grant-1")
    wait_until(lambda: "legato_audit_violations 0.0" in metrics_at(address))
    with sqlite3.connect(socket_folder / "metering.db") as books:
        books.execute("UPDATE accounts SET balance_nanos = 6")
    books.close()
    wait_until(lambda: "legato_audit_violations 1.0" in metrics_at(address))
    code, said = process.stop()
    assert code == 0
    assert "account acct_a: balance is +1 nanos off the sum of its ledger" in said


def test_audit_that_takes_long_is_in_the_way_of_neither_writes_nor_the_end(
    socket_folder: Path, postgres_url: str, admin: CreditAdminServiceStub
) -> None:
    process = start(socket_folder, LEGATO_DATABASE_URL=postgres_url, LEGATO_AUDIT_INTERVAL_S="0.1")
    process.wait_for('"service.started"')
    with psycopg.connect(postgres_url) as locking, psycopg.connect(postgres_url, autocommit=True) as watching:
        locking.execute("LOCK TABLE metering.prices IN ACCESS EXCLUSIVE MODE")
        waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%ledger%'"
        wait_until(lambda: watching.execute(waiting).fetchone() is not None)
        assert balance_after_grant(admin, "grant-1") == 5
        assert process.stop()[0] == 0


def metrics_at(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_TIMEOUT_S) as response:
        text: str = response.read().decode()
        return text
