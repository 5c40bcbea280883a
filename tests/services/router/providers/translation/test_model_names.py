"""Names of models at clouds."""

import pytest

from services.router.providers.ability_table import abilities_of
from services.router.providers.translation.model_names import plain_name

NAMES = {
    "us.anthropic.claude-opus-4-6-v1:0": "claude-opus-4-6",
    "anthropic.claude-sonnet-4-5-20250929-v1:0": "claude-sonnet-4-5-20250929",
    "global.anthropic.claude-opus-4-6-v1": "claude-opus-4-6",
    "us-gov.anthropic.claude-sonnet-5-v1:0": "claude-sonnet-5",
    "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-5-v1:0": "claude-opus-5",
    "claude-fable-5@20260601": "claude-fable-5-20260601",
    "claude-opus-4-6": "claude-opus-4-6",
    "openai.gpt-5.5": "gpt-5.5",
    "gpt-5.5": "gpt-5.5",
    "google/gemini-2.5-pro": "gemini-2.5-pro",
    "deepseek-v4": "deepseek-v4",
    "Vendor/Qwen3.5-Plus": "qwen3.5-plus",
}


@pytest.mark.parametrize(("given", "plain"), NAMES.items())
def test_clouds_names_are_those_of_the_vendors(given: str, plain: str) -> None:
    assert plain_name(given) == plain


def test_model_takes_the_same_at_each_cloud() -> None:
    own = abilities_of("anthropic", "claude-fable-5-20260601")
    assert own == abilities_of("anthropic", "claude-fable-5@20260601")
    assert own == abilities_of("anthropic", "us.anthropic.claude-fable-5-20260601-v1:0")
