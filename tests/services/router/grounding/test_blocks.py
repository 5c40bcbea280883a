"""Blocks put into a prompt: their parts take what was counted for them."""

import pytest

from services.router.grounding.blocks import (
    note_tokens,
    notes_block,
    passage_tokens,
    passages_block,
    result_tokens,
    results_block,
)
from services.router.grounding.citations import Sources
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
    assert count(notes_block(notes)) == count(notes_block(())) + sum(map(note_tokens, notes))


@pytest.mark.parametrize("name", ["manual.pdf", '"<odd>".txt', "/"])
def test_tokens_of_passages_add_up_to_those_of_their_block(name: str) -> None:
    sources = Sources()
    numbered = [(sources.add(name, ""), Passage("att_1", name, page, 0, text)) for page, text in enumerate(TEXTS)]
    counted = sum(passage_tokens(passage) for _, passage in numbered)
    assert count(passages_block(numbered)) == count(passages_block(())) + counted


def test_tokens_of_results_add_up_to_those_of_their_block_whatever_their_numbers() -> None:
    sources = Sources()
    results = [SearchResult(text, f"https://{number}.test/", text) for number, text in enumerate(16 * TEXTS)]
    numbered = [(sources.add(result.title, result.url), result) for result in results]
    assert count(results_block(numbered)) == count(results_block(())) + sum(map(result_tokens, results))
