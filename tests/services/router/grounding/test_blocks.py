"""Blocks put into a prompt: their parts take what was counted for them."""

import pytest

from services.router.grounding.blocks import NOTES, PASSAGES, RESULTS
from services.router.grounding.records import Note, Passage, SearchResult
from services.router.prompts.tokens import count

TEXTS = [
    "I own a Zephyr.",
    "\n/ begins and ends with lines \n\n",
    "<<>>",
    '{"a": "b"}',
    "/",
    "ends with >",
    "日本語",
    "[INST]",
]


def test_tokens_of_notes_add_up_to_those_of_their_block() -> None:
    notes = [Note("note_1", "acct_1", 0, 0, text) for text in TEXTS]
    assert count(NOTES.render(notes)) == count(NOTES.render()) + sum(map(NOTES.tokens_of, notes))


@pytest.mark.parametrize("name", ["manual.pdf", '"<odd>".txt', "/"])
def test_tokens_of_passages_add_up_to_those_of_their_block(name: str) -> None:
    passages = [Passage("att_1", name, page, text) for page, text in enumerate(TEXTS)]
    assert count(PASSAGES.render(passages)) == count(PASSAGES.render()) + sum(map(PASSAGES.tokens_of, passages))


def test_tokens_of_results_add_up_to_those_of_their_block_whatever_their_numbers() -> None:
    results = [SearchResult(text, f"https://{number}.test/", text) for number, text in enumerate(16 * TEXTS)]
    assert count(RESULTS.render(results)) == count(RESULTS.render()) + sum(map(RESULTS.tokens_of, results))
