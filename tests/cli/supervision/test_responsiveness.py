from collections.abc import Iterator

import pytest

from cli.supervision.responsiveness import LATE_S, LEAST_MISSES, Responsiveness

TIMEOUT_S = 3.0
EVERY_S = 3.0


def ticks(first_s: float, *, lateness_s: float = 0.0) -> Iterator[tuple[float, float, float, float]]:
    """Checks that nobody answers: when each was due, began and ended."""
    due_s = first_s
    while True:
        began_s = due_s + lateness_s
        yield due_s, began_s, began_s + TIMEOUT_S, TIMEOUT_S
        due_s = began_s + TIMEOUT_S + EVERY_S


def answering(at_s: float = 100.0) -> Responsiveness:
    process = Responsiveness(0.0, start_timeout_s=60.0, unresponsive_after_s=20.0)
    process.note_answer(at_s)
    return process


def test_a_process_that_answers_no_more_hangs_after_some_time_and_some_misses() -> None:
    process = answering(at_s=100.0)
    hung_at_s = next(tick[2] for tick in ticks(103.0) if process.note_miss(*tick))
    # Its checks end at 106, 112, 118, 124.
    assert hung_at_s == 124.0
    assert process.silent_s(hung_at_s) == 24.0


def test_few_misses_are_chance_however_long_they_took() -> None:
    process = answering()
    verdicts = [process.note_miss(at_s, at_s, at_s + 1.0, TIMEOUT_S) for at_s in (200.0, 300.0, 400.0, 500.0)]
    assert verdicts == [False] * (LEAST_MISSES - 1) + [True]


def test_one_answer_begins_the_count_again() -> None:
    process = answering()
    for tick, _ in zip(ticks(103.0), range(3), strict=False):
        assert not process.note_miss(*tick)
    process.note_answer(121.0)
    assert not process.note_miss(124.0, 124.0, 127.0, TIMEOUT_S)


@pytest.mark.parametrize("lateness_s", [LATE_S * 1.5, 30.0, 3600.0])
def test_a_machine_that_is_late_itself_says_nothing_of_its_processes(lateness_s: float) -> None:
    """A machine that was suspended or has no processor to give restarts nobody."""
    process = answering()
    for tick, _ in zip(ticks(103.0, lateness_s=lateness_s), range(50), strict=False):
        assert not process.note_miss(*tick)


def test_a_check_that_took_longer_than_it_may_says_nothing_either() -> None:
    process = answering()
    for due_s in range(103, 1000, 60):
        assert not process.note_miss(due_s, due_s, due_s + TIMEOUT_S + 40.0, TIMEOUT_S)


def test_after_a_pause_of_the_machine_the_whole_time_is_given_again() -> None:
    process = answering()
    for tick, _ in zip(ticks(103.0), range(3), strict=False):
        process.note_miss(*tick)
    assert not process.note_miss(121.0, 500.0, 503.0, TIMEOUT_S)
    hung_at_s = next(tick[2] for tick in ticks(506.0) if process.note_miss(*tick))
    assert hung_at_s == 527.0


def test_a_process_that_starts_has_the_time_of_a_start() -> None:
    process = Responsiveness(0.0, start_timeout_s=60.0, unresponsive_after_s=20.0)
    assert next(tick[2] for tick in ticks(3.0) if process.note_miss(*tick)) == 60.0
