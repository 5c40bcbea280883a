"""The signatures of Gemini's calls, on Google's own wire and on OpenAI's."""

from typing import Final

# Google's placeholder for a call whose signature was not kept. Gemini 3 and later require one.
NO_SIGNATURE: Final = "skip_thought_signature_validator"
MODELS_WITHOUT_SIGNATURES: Final = ("gemini-1", "gemini-2")


def needs_signatures(model_name: str) -> bool:
    return not model_name.rpartition("/")[2].startswith(MODELS_WITHOUT_SIGNATURES)
