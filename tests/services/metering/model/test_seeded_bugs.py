"""What checks the books can see: every seeded bug is caught, and nothing is without one."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest

from tests.services.metering.conftest import MIGRATIONS
from tests.services.metering.model.machine import Machine
from tests.services.metering.model.records import Refusal
from tests.services.metering.model.replicas import Replicas
from tests.services.metering.model.seeded_bugs import LIMITS, OWED, RACES, RULES, STORE, Patch
from tests.services.metering.model.stories import tell_story
from tests.services.metering.samples import extend, grant, reserve, settle
from tests.support.servers.migrated import migrated_sqlite

# The first few are enough, until what they are made of changes.
STORIES = 200

PATCHES = {**RULES, **OWED, **LIMITS, **STORE}
# Those that need many stories, or steps that take long: `make test-stores` and `make seeded-bugs`.
RARE = (
    "past_days_without_limits",
    "key_whose_account_has_no_limit",
    "late_settle_beyond_free_credit",
    "live_holds_counted_without_the_batch_itself",
    "claim_and_effect_in_two_transactions",
    "late_settle_ignored",
    "prompt_charged_of_a_request_that_is_over",
    "one_more_at_once_than_allowed",
    "sweep_that_frees_the_key",
    "extend_that_shrinks",
    "days_that_never_end",
    "extend_as_a_delta",
    "rotation_that_renews_limits",
    "reserve_that_is_not_idempotent",
    "void_of_an_unknown_that_leaves_nothing",
    "reserve_as_one_statement",
)


class Caught(BaseException):
    """Ends the stories at once: Hypothesis does not try again what is no ordinary exception."""


class Impatient(Machine):
    def _fail(self, violation: str) -> NoReturn:
        raise Caught(violation)


@pytest.mark.parametrize(
    "patch",
    [pytest.param(patch, id=name, marks=[pytest.mark.long] * (name in RARE)) for name, patch in PATCHES.items()],
)
def test_bug_in_the_rules_or_the_store_is_caught(patch: Patch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = migrated_sqlite(tmp_path / "test.db", "metering", MIGRATIONS)
    with contextlib.closing(Replicas(url)) as replicas:
        patch(monkeypatch)
        with pytest.raises(Caught):
            tell_stories(replicas)


def tell_stories(replicas: Replicas) -> None:
    for number in range(STORIES):
        tell_story(number, lambda: Impatient(replicas))


@pytest.fixture
def replicas(postgres_url: str) -> Iterator[Replicas]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        # A deadlock is found by waiting.
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET deadlock_timeout = '10ms'".encode())
    replicas = Replicas(postgres_url)
    replicas.ask([grant(10_000)], [])
    yield replicas
    replicas.close()


def race(replicas: Replicas) -> list[str]:
    """Both replicas do something with the same account, and with the same requests, at the same time."""
    for first, second in ((1, 2), (3, 4)):
        replicas.ask([reserve(first)], [reserve(second)])
        replicas.ask([extend(first, 200), extend(second, 200)], [extend(second, 300), extend(first, 300)])
        replicas.ask([extend(first, 400)], [settle(first, completion=3)])
        replicas.ask([settle(second, completion=3)], [settle(second, completion=3)])
    failures = [line for line in replicas.log_text().splitlines() if "failed" in line]
    [first_answer], [second_answer] = replicas.ask([reserve(5, at_once=1)], [reserve(6, at_once=1)])
    if not isinstance(first_answer, Refusal) and not isinstance(second_answer, Refusal):
        failures.append("more than one at once")
    return failures + replicas.audit()


def test_replicas_that_race_do_no_harm(replicas: Replicas) -> None:
    assert race(replicas) == []


@pytest.mark.parametrize(("patch", "sign"), RACES.values(), ids=RACES)
def test_race_is_caught(patch: Patch, sign: str, replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch)
    assert any(sign in line for line in race(replicas))
