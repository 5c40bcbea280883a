import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from edge.access import running_keys as module
from edge.access.running_keys import RunningKeys
from services.chassis.errors import LegatoError, Reason, unavailable


class Auth:
    """Knows which keys are no longer good, and can be away."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.asked: list[set[str]] = []
        self.is_away = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def find_refused(self, key_ids: Sequence[str]) -> list[str]:
        self.asked.append(set(key_ids))
        answer = [key_id for key_id in key_ids if key_id in self.refused]
        await self.may_answer.wait()
        if self.is_away:
            raise unavailable("Authentication")
        return answer


@pytest.fixture
async def auth(monkeypatch: pytest.MonkeyPatch) -> Auth:
    monkeypatch.setattr(module, "ASK_AGAIN_AFTER_S", 0.001)
    return Auth()


@pytest.fixture
async def running_keys(auth: Auth) -> AsyncIterator[RunningKeys]:
    running_keys = RunningKeys(auth.find_refused)
    yield running_keys
    await running_keys.close()


async def until_refused(running_key: module.RunningKey) -> None:
    async with asyncio.timeout(60):
        while not running_key.is_refused:
            await asyncio.sleep(0.001)


async def test_good_key_raises_nothing(running_keys: RunningKeys) -> None:
    with running_keys.add("key_a") as running_key:
        running_key.raise_if_refused()


async def test_every_running_answer_of_a_refused_key_is_told_and_no_other(running_keys: RunningKeys) -> None:
    with (
        running_keys.add("key_a") as first,
        running_keys.add("key_a") as second,
        running_keys.add("key_b") as other,
    ):
        running_keys.refuse(["key_a", "key_unknown"])
        for running_key in (first, second):
            with pytest.raises(LegatoError) as caught:
                running_key.raise_if_refused()
            assert caught.value.reason is Reason.KEY_INVALID
            assert "revoked, or its account suspended" in caught.value.message
        other.raise_if_refused()


async def test_nothing_is_kept_of_answers_that_ended(running_keys: RunningKeys) -> None:
    with running_keys.add("key_a"), running_keys.add("key_a"):
        pass
    assert running_keys._by_key_id == {}


async def test_answer_that_begins_after_the_refusal_is_not_told_of_it(running_keys: RunningKeys) -> None:
    """Its key was verified since: the account may have been resumed."""
    with running_keys.add("key_a"):
        running_keys.refuse(["key_a"])
        with running_keys.add("key_a") as later:
            later.raise_if_refused()


async def test_doubted_keys_are_asked_about_and_only_those_that_run(running_keys: RunningKeys, auth: Auth) -> None:
    auth.refused = {"key_a", "key_gone"}
    with running_keys.add("key_a") as bad, running_keys.add("key_b") as good:
        running_keys.recheck_all()
        running_keys.recheck(["key_gone"])
        await until_refused(bad)
        assert not good.is_refused
    assert auth.asked == [{"key_a", "key_b"}]


async def test_question_is_repeated_until_auth_is_back(running_keys: RunningKeys, auth: Auth) -> None:
    auth.refused, auth.is_away = {"key_a"}, True
    with running_keys.add("key_a") as running_key:
        running_keys.recheck_all()
        async with asyncio.timeout(60):
            while len(auth.asked) < 3:
                await asyncio.sleep(0.001)
        assert not running_key.is_refused
        auth.is_away = False
        await until_refused(running_key)


async def test_question_is_given_up_when_nothing_runs_any_more(running_keys: RunningKeys, auth: Auth) -> None:
    auth.is_away = True
    with running_keys.add("key_a"):
        running_keys.recheck_all()
        await asyncio.sleep(0)
    assert running_keys._asking is not None
    async with asyncio.timeout(60):
        await running_keys._asking


async def test_doubt_during_a_question_is_not_settled_by_its_answer(running_keys: RunningKeys, auth: Auth) -> None:
    auth.may_answer.clear()
    with running_keys.add("key_a") as running_key:
        running_keys.recheck_all()
        await asyncio.sleep(0)
        # The answer to the first question is made; now the key is revoked, and that is missed as well.
        auth.refused = {"key_a"}
        running_keys.recheck_all()
        auth.may_answer.set()
        await until_refused(running_key)
    assert len(auth.asked) == 2
