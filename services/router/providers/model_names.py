"""The names of models, without what clouds add to them, and the signatures that they tell of."""

import re
from typing import Final

# Amazon's parts of the world and vendors, as in us.anthropic.claude-opus-4-6-v1:0.
_OWNERS: Final = re.compile(r"^(?:[a-z-]+\.)+")
# Google's placeholder for a call whose signature was not kept. Gemini 3 and later require one.
NO_SIGNATURE: Final = "skip_thought_signature_validator"
_MODELS_WITHOUT_SIGNATURES: Final = ("gemini-1", "gemini-2")
_CLAUDE: Final = "claude-"
_REVISION: Final = re.compile(r"-v\d+(?::\d+)?$")


def plain_name(model_name: str) -> str:
    """Returns the vendor's own name of a model, in lower case, with a date after a hyphen if it has one."""
    name = _OWNERS.sub("", model_name.rpartition("/")[2].lower())
    if name.startswith(_CLAUDE):
        # With Google's sign before a date.
        name = _REVISION.sub("", name).replace("@", "-")
    return name


def needs_signatures(model_name: str) -> bool:
    """Returns whether the calls of a model of Google's have to come back with signatures."""
    return not model_name.rpartition("/")[2].startswith(_MODELS_WITHOUT_SIGNATURES)
