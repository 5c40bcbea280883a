from contextlib import ExitStack

from services.router.routing.retry_budget import LEAST_RETRIES, RETRY_SHARE, RetryBudget


def test_few_chats_have_a_few_retries() -> None:
    budget = RetryBudget()
    with ExitStack() as running:
        running.enter_context(budget.waiting)
        for _ in range(LEAST_RETRIES):
            assert not budget.is_spent
            running.enter_context(budget.retry)
        assert budget.is_spent


def test_of_many_chats_a_share_is_tried_again_at_once() -> None:
    budget = RetryBudget()
    with ExitStack() as running:
        for _ in range(100):
            running.enter_context(budget.waiting)
        retries = 0
        while not budget.is_spent:
            running.enter_context(budget.retry)
            retries += 1
        assert retries == RETRY_SHARE * 100


def test_retry_that_is_over_makes_room_for_another() -> None:
    budget = RetryBudget()
    with budget.waiting:
        for _ in range(10 * LEAST_RETRIES):
            assert not budget.is_spent
            with budget.retry:
                pass
