import pytest

from services.router.prompts.tokens import count
from services.router.reasoning.restoring import TakenBack, restore
from services.router.reasoning.set_aside import CLIENTS_OWN
from services.router.schema.messages import Message, Messages, encode_string
from services.router.schema.thoughts import (
    CallSignature,
    Carried,
    ReasoningDetail,
    ReasoningText,
    ResponsesReasoning,
    ThinkingBlock,
    Thought,
)

TEXT = ReasoningText("It rains in Paris.", "reasoning")
DETAIL = ReasoningDetail('{"type":"reasoning.summary","summary":"It rains."}')
TAKEN = TakenBack("model", "model here", (ReasoningText, ReasoningDetail), (ReasoningText,))


def messages_with(*roles: str, thoughts: dict[int, dict[int, Carried]]) -> Messages:
    return Messages([Message(role=role, content=encode_string("x")) for role in roles], thoughts=thoughts)


@pytest.mark.parametrize(
    ("family", "thought", "is_kept"),
    [
        ("model", TEXT, True),
        ("model here", DETAIL, True),
        ("another", TEXT, False),
        ("model", ThinkingBlock("t", "s"), False),
        (CLIENTS_OWN, TEXT, True),
        (CLIENTS_OWN, DETAIL, False),
    ],
)
async def test_model_gets_what_is_its_own_in_its_own_terms(family: str, thought: Thought, is_kept: bool) -> None:
    carried = Carried(family, "", [thought])
    messages, _ = await restore(messages_with("user", "assistant", thoughts={1: {0: carried}}), TAKEN)
    assert messages.thoughts == ({1: {0: carried}} if is_kept else {})


async def test_thoughts_of_the_present_loop_are_counted() -> None:
    own = {0: Carried("model", "", [TEXT, DETAIL])}
    roles = ("user", "assistant", "tool", "user", "assistant", "tool", "assistant", "tool")
    messages, tokens = await restore(messages_with(*roles, thoughts={1: own, 4: own, 6: own}), TAKEN)
    assert tokens == 2 * (count(TEXT.text) + count("It rains."))
    assert set(messages.thoughts) == {1, 4, 6}


@pytest.mark.parametrize(
    ("thoughts", "family"),
    [
        ([TEXT], "model"),
        ([TEXT, DETAIL], "model here"),
        ([CallSignature("s")], "model here"),
        ([ResponsesReasoning("{}")], "model here"),
    ],
)
def test_what_only_its_provider_reads_is_sealed_for_that_alone(thoughts: list[Thought], family: str) -> None:
    assert TAKEN.family_of(thoughts) == family
