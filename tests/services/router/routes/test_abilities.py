"""What the routes file says of a model's abilities."""

from typing import Any

import pytest

from services.router.providers.ability_table import abilities_of
from services.router.routes.abilities import read_abilities
from services.router.routes.file import Table

OPUS = abilities_of("anthropic", "claude-opus-5")


def test_what_is_not_named_is_as_it_is_known() -> None:
    mistakes: list[str] = []
    fields = {
        "efforts": ["high", "low"],
        "thinks": "always",
        "forced_tools": False,
        "output_field": "max_tokens",
        "refused": ["seed"],
    }
    read = read_abilities(Table(mistakes, "models.big.abilities", fields), OPUS)
    assert (mistakes, read.efforts, read.thinks, read.forced_tools) == ([], ("low", "high"), "always", False)
    assert (read.output_field, read.refused) == ("max_tokens", frozenset(("seed",)))
    assert (read.thinking, read.prefill) == (OPUS.thinking, OPUS.prefill)


@pytest.mark.parametrize(
    ("fields", "mistake"),
    [
        (
            {"efforts": ["low", "ultra"]},
            'efforts: has "ultra", but may only have none, minimal, low, medium, high, xhigh, max',
        ),
        ({"efforts": "low"}, "efforts: must be a list of words"),
        ({"prefill": "yes"}, "prefill: must be true or false"),
        ({"thinks": "never"}, 'thinks: is "never", but must be one of on_request, by_default, always'),
        ({"api": "grpc"}, 'api: is "grpc", but must be one of chat, responses'),
        ({"past_reasoning": "some"}, 'past_reasoning: is "some", but must be one of all, with_ids, latest'),
        ({"colour": "blue"}, "colour: is not a known key"),
    ],
)
def test_mistakes_are_told_with_their_place(fields: dict[str, Any], mistake: str) -> None:
    mistakes: list[str] = []
    read_abilities(Table(mistakes, "models.big.abilities", fields), OPUS)
    assert mistakes == [f"models.big.abilities.{mistake}"]
