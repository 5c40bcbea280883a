from console.display.error_words import error_words
from services.chassis.errors import Reason


def test_every_reason_of_the_error_table_has_words() -> None:
    meanings = [error_words(reason).meaning for reason in Reason]
    assert len(set(meanings)) == len(Reason)
    for reason in Reason:
        words = error_words(reason)
        assert all(words)
        assert reason not in " ".join(words)
        assert words.owner_advice.endswith(".")
        assert words.operator_advice.endswith(".")


def test_a_reason_of_a_newer_release_is_told_as_it_is() -> None:
    assert error_words("FROM_TOMORROW").meaning == "FROM_TOMORROW"
    assert "newer release" in error_words("FROM_TOMORROW").operator_advice
