"""How many documents are added at once, and how much space they take."""

from contextlib import ExitStack

import pytest

from services.chassis.errors import LegatoError, Reason
from services.router.grounding.documents.intake import BY_ACCOUNT_MOST, IN_ALL_MOST, UploadLimits

SPACE_BYTES = 1_000_000


@pytest.fixture
def limits() -> UploadLimits:
    return UploadLimits(SPACE_BYTES)


def refusal_of(limits: UploadLimits, account_id: str, size_bytes: int = 1) -> LegatoError:
    with pytest.raises(LegatoError) as refusal, limits.admit(account_id, size_bytes):
        pass
    assert refusal.value.retry_after_s
    return refusal.value


def test_account_adds_a_few_at_once_and_others_are_not_concerned(limits: UploadLimits) -> None:
    with ExitStack() as held:
        for _ in range(BY_ACCOUNT_MOST):
            held.enter_context(limits.admit("acct_1", 10))
        refusal = refusal_of(limits, "acct_1")
        assert refusal.reason is Reason.TOO_MANY_AT_ONCE
        assert "adding 4 documents already" in refusal.message
        with limits.admit("acct_2", 10):
            pass
    with limits.admit("acct_1", 10):
        pass


def test_documents_take_no_more_space_than_there_is(limits: UploadLimits) -> None:
    with limits.admit("acct_1", SPACE_BYTES - 10):
        assert refusal_of(limits, "acct_2", 11).reason is Reason.SATURATED
        with limits.admit("acct_2", 10):
            pass
    with limits.admit("acct_2", SPACE_BYTES):
        pass


def test_document_that_is_larger_than_announced_takes_more_space_or_is_refused(limits: UploadLimits) -> None:
    with limits.admit("acct_1", 0) as space:
        space.grow_to(SPACE_BYTES)
        assert refusal_of(limits, "acct_2").reason is Reason.SATURATED
        with pytest.raises(LegatoError) as refusal:
            space.grow_to(SPACE_BYTES + 1)
        assert refusal.value.reason is Reason.SATURATED
    with limits.admit("acct_2", SPACE_BYTES):
        pass


def test_account_leaves_a_third_of_the_space_to_the_others(limits: UploadLimits) -> None:
    with limits.admit("acct_1", SPACE_BYTES // 3), limits.admit("acct_1", SPACE_BYTES // 3):
        assert refusal_of(limits, "acct_1", 10).reason is Reason.SATURATED
        with limits.admit("acct_2", SPACE_BYTES // 3):
            pass


def test_there_are_so_many_places_in_all(limits: UploadLimits) -> None:
    with ExitStack() as held:
        for number in range(IN_ALL_MOST):
            held.enter_context(limits.admit(f"acct_{number}", 1))
        assert refusal_of(limits, "acct_new").reason is Reason.SATURATED
    with limits.admit("acct_new", 1):
        pass
