from services.router.reasoning.answer_seals import AnswerSeals
from services.router.reasoning.restoring import TakenBack
from services.router.reasoning.sealed_ids import ReasoningSeals
from services.router.schema.thoughts import CallSignature, Carried, ReasoningText

SEALS = ReasoningSeals({1: b"k" * 32})
TAKEN = TakenBack("model", "model here", (ReasoningText, CallSignature))
TEXT, SIGNATURE = ReasoningText("So.", "reasoning"), CallSignature("s")


def sealed_for(*, is_shown: bool) -> AnswerSeals:
    return AnswerSeals(SEALS, TAKEN, "acct_1", is_shown=is_shown)


def test_ids_and_data_name_who_may_be_given_the_thoughts() -> None:
    seals = sealed_for(is_shown=True)
    own, carried = SEALS.open_id(seals.seal_id("call_1", "call_1", [SIGNATURE]), "acct_1")
    assert (own, carried) == ("call_1", Carried("model here", "", [SIGNATURE]))
    assert SEALS.open_data(seals.seal_data([TEXT]), "acct_1") == Carried("model", "", [TEXT])


def test_client_that_did_not_ask_is_told_nothing() -> None:
    assert sealed_for(is_shown=False).seal_data([TEXT]) == ""
    assert sealed_for(is_shown=True).seal_data([]) == ""
