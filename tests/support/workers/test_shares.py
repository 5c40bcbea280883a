from tests.support.workers.shares import Share, Shares

ALONE = [Share((number,), None) for number in range(10, 14)]


def shared(folder: str, *places: int) -> list[Share]:
    return [Share((place,), folder) for place in places]


def test_each_folder_is_run_by_one_worker_while_there_are_others() -> None:
    shares = Shares([*shared("e2e", 0, 1, 2), *shared("cli", 3, 4), *ALONE], workers=3)
    assert [shares.take(worker) for worker in (0, 1, 0, 1, 0)] == [
        *_taken((0, "e2e"), (3, "cli"), (1, "e2e"), (4, "cli"), (2, "e2e"))
    ]


def test_last_worker_fills_the_time_that_others_wait() -> None:
    shares = Shares([*shared("e2e", 0, 1), *ALONE], workers=2)
    assert [shares.take(1) for _ in ALONE] == ALONE


def test_worker_whose_folder_is_done_begins_another_and_then_takes_what_is_alone() -> None:
    shares = Shares([*shared("e2e", 0), *shared("cli", 1), *ALONE], workers=2)
    assert [shares.take(0) for _ in range(3)] == [*_taken((0, "e2e"), (1, "cli")), ALONE[0]]


def test_worker_that_has_nothing_else_helps_with_the_folder_that_has_most_left() -> None:
    shares = Shares([*shared("e2e", 0, 1, 2, 3), *shared("cli", 4, 5)], workers=3)
    shares.take(0)
    shares.take(1)
    assert shares.take(2) == Share((3,), "e2e")


def test_everything_is_run_once() -> None:
    given = [*shared("e2e", 0, 1, 2), *shared("cli", 3, 4), *ALONE]
    shares = Shares(given, workers=3)
    taken = [shares.take(number % 3) for number in range(len(given))]
    assert sorted(share.places for share in taken if share) == sorted(share.places for share in given)
    assert [shares.take(worker) for worker in range(3)] == [None, None, None]


def test_what_a_worker_has_not_run_is_given_to_another() -> None:
    shares = Shares([Share((0, 1, 2), "e2e")], workers=2)
    shares.take(0)
    assert shares.take(1) is None
    shares.give_back(0, (1, 2), "e2e")
    assert shares.take(1) == Share((1, 2), "e2e")


def _taken(*expected: tuple[int, str]) -> list[Share]:
    return [Share((place,), folder) for place, folder in expected]
