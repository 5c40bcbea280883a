"""The names of models, without what clouds add to them."""

import re
from typing import Final

# Amazon's parts of the world and vendors, as in us.anthropic.claude-opus-4-6-v1:0.
_OWNERS: Final = re.compile(r"^(?:[a-z-]+\.)+")
_CLAUDE: Final = "claude-"
_REVISION: Final = re.compile(r"-v\d+(?::\d+)?$")


def plain_name(model_name: str) -> str:
    """Returns the vendor's own name of a model, in lower case, with a date after a hyphen if it has one."""
    name = _OWNERS.sub("", model_name.rpartition("/")[2].lower())
    if name.startswith(_CLAUDE):
        # With Google's sign before a date.
        name = _REVISION.sub("", name).replace("@", "-")
    return name
