"""The figures in what providers say about a prompt that is too long, in their own sentences."""

import pytest

from services.router.prompts.fitting import Figures
from services.router.providers.errors.length_figures import MOST_CHARACTERS, read_figures

SENTENCES = {
    "OpenAI, DeepSeek": (
        (
            "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (61808 in the"
            " messages, 8192 in the completion). Please reduce the length of the messages or completion."
        ),
        Figures(65_536, None, 70_000),
    ),
    "OpenAI, the prompt alone": (
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens"
            " (129000 in the messages, 1001 in the functions). Please reduce the length of the messages or functions."
        ),
        Figures(128_000, 130_001),
    ),
    "vLLM": (
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 8192"
            " tokens and your request has 8000 input tokens (4096 > 8192 - 8000)."
        ),
        Figures(8_192, 8_000),
    ),
    "vLLM, later": (
        (
            "You passed 8000 input tokens and requested 4096 output tokens. However, the model's context length is only"
            " 8192 tokens, resulting in a maximum input length of 4096 tokens."
        ),
        Figures(8_192, 8_000),
    ),
    "vLLM, the prompt alone": (
        "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
        Figures(8_192, 9_000),
    ),
    "SGLang": (
        (
            "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of"
            " 9000 tokens: 8000 tokens from the input messages and 1000 tokens for the completion."
        ),
        Figures(8_192, 8_000, 9_000),
    ),
    "SGLang, the prompt alone": (
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        Figures(8_192, 9_000),
    ),
    "TGI": (
        "`inputs` tokens + `max_new_tokens` must be <= 8192. Given: 8000 `inputs` tokens and 1000 `max_new_tokens`",
        Figures(8_192, 8_000),
    ),
    "Anthropic": (
        (
            "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease input length or"
            " `max_tokens` and try again"
        ),
        Figures(200_000, 199_000),
    ),
    "Anthropic, the prompt alone": (
        "prompt is too long: 207791 tokens > 200000 maximum",
        Figures(200_000, 207_791),
    ),
    "Gemini": (
        "The input token count (3475108) exceeds the maximum number of tokens allowed (1048576).",
        Figures(1_048_576, 3_475_108),
    ),
    "Gemini, elsewhere": (
        "The input token count is 1100000 but model only supports up to 1,048,576.",
        Figures(1_048_576, 1_100_000),
    ),
    "llama.cpp": (
        "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        Figures(8_192, 9_000),
    ),
    "OpenRouter": (
        (
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (8000"
            " of text input, 928 of tool input, 131072 in the output). Please reduce the length of either one."
        ),
        Figures(131_072, None, 140_000),
    ),
    "Mistral": (
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        Figures(32_768, 40_000),
    ),
    "xAI": (
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        Figures(131_072, 140_000),
    ),
    "Groq": ("Please reduce the length of the messages or completion.", Figures()),
}


@pytest.mark.parametrize(("sentence", "figures"), SENTENCES.values(), ids=list(SENTENCES))
def test_figures_are_found_in_each_providers_sentence(sentence: str, figures: Figures) -> None:
    assert read_figures(sentence.lower(), b"") == figures


def test_figures_that_come_as_numbers_are_taken_as_they_are() -> None:
    said = b'{"error":{"code":400,"message":"no","n_prompt_tokens":9000,"n_ctx":8192}}'
    assert read_figures("no", said) == Figures(8_192, 9_000)
    assert read_figures("no", b'{"code":400,"n_prompt_tokens":9000,"n_ctx":8192}') == Figures(8_192, 9_000)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "maximum context length is " + "9" * 13,
        "maximum context length is -1",
        "x" * MOST_CHARACTERS + "maximum context length is 10",
        "requested tokens",
        "0" * 100_000,
        "context length is only (" * 5_000,
    ],
)
def test_what_is_no_figure_is_none(message: str) -> None:
    for said in (
        b"",
        b"[",
        b"7",
        b'{"error":"no"}',
        b'{"error":{"n_ctx":"10"}}',
        b'{"error":{"n_ctx":-1}}',
        b"[" * 10_000,
    ):
        assert read_figures(message, said) == Figures()
