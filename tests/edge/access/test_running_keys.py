import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from edge.access import running_keys as module
from edge.access.running_keys import Standings
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
async def standings(auth: Auth) -> AsyncIterator[Standings]:
    standings = Standings(auth.find_refused)
    yield standings
    await standings.close()


async def until_refused(standing: module.Standing) -> None:
    async with asyncio.timeout(60):
        while not standing.is_refused:
            await asyncio.sleep(0.001)


async def test_good_key_raises_nothing(standings: Standings) -> None:
    with standings.enter("key_a") as standing:
        standing.raise_if_refused()


async def test_every_running_answer_of_a_refused_key_is_told_and_no_other(standings: Standings) -> None:
    with standings.enter("key_a") as first, standings.enter("key_a") as second, standings.enter("key_b") as other:
        standings.refuse(["key_a", "key_unknown"])
        for standing in (first, second):
            with pytest.raises(LegatoError) as caught:
                standing.raise_if_refused()
            assert caught.value.reason is Reason.KEY_INVALID
            assert "revoked, or its account suspended" in caught.value.message
        other.raise_if_refused()


async def test_nothing_is_kept_of_answers_that_ended(standings: Standings) -> None:
    with standings.enter("key_a"), standings.enter("key_a"):
        pass
    assert standings._by_key_id == {}


async def test_answer_that_begins_after_the_refusal_is_not_told_of_it(standings: Standings) -> None:
    """Its key was verified since: the account may have been resumed."""
    with standings.enter("key_a"):
        standings.refuse(["key_a"])
        with standings.enter("key_a") as later:
            later.raise_if_refused()


async def test_doubted_keys_are_asked_about_and_only_those_that_run(standings: Standings, auth: Auth) -> None:
    auth.refused = {"key_a", "key_gone"}
    with standings.enter("key_a") as bad, standings.enter("key_b") as good:
        standings.doubt_all()
        standings.doubt(["key_gone"])
        await until_refused(bad)
        assert not good.is_refused
    assert auth.asked == [{"key_a", "key_b"}]


async def test_question_is_repeated_until_auth_is_back(standings: Standings, auth: Auth) -> None:
    auth.refused, auth.is_away = {"key_a"}, True
    with standings.enter("key_a") as standing:
        standings.doubt_all()
        async with asyncio.timeout(60):
            while len(auth.asked) < 3:
                await asyncio.sleep(0.001)
        assert not standing.is_refused
        auth.is_away = False
        await until_refused(standing)


async def test_question_is_given_up_when_nothing_runs_any_more(standings: Standings, auth: Auth) -> None:
    auth.is_away = True
    with standings.enter("key_a"):
        standings.doubt_all()
        await asyncio.sleep(0)
    assert standings._asking is not None
    async with asyncio.timeout(60):
        await standings._asking


async def test_doubt_during_a_question_is_not_settled_by_its_answer(standings: Standings, auth: Auth) -> None:
    auth.may_answer.clear()
    with standings.enter("key_a") as standing:
        standings.doubt_all()
        await asyncio.sleep(0)
        # The answer to the first question is made; now the key is revoked, and that is missed as well.
        auth.refused = {"key_a"}
        standings.doubt_all()
        auth.may_answer.set()
        await until_refused(standing)
    assert len(auth.asked) == 2
