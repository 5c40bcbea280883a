"""The abilities of models: the parts of a request that each takes, beyond what its provider's API has."""

from dataclasses import dataclass, fields
from typing import Final, Literal

# From the least to the most.
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Parameters that choose among likely words; models that reason refuse them.
SAMPLING: Final = frozenset({"temperature", "top_p", "presence_penalty", "frequency_penalty"})


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities of one model. The defaults are those of a model of which nothing is known."""

    # The words of `reasoning_effort`; none: it takes no such word. None: they are not known.
    efforts: tuple[str, ...] | None = None
    # How it is told to think: by itself as much as it needs, by a number of tokens, or by a level.
    thinking: Literal["", "adaptive", "budget", "level"] = ""
    thinks: Literal["on_request", "by_default", "always"] = "on_request"
    # The word that turns thinking off, where it thinks by default.
    thinking_off: str = "disabled"
    # Whether it can be made to call a tool, and so while it thinks by a budget or by itself.
    forced_tools: bool = True
    forced_tools_thinking: bool = False
    # Whether it takes system messages within a conversation.
    system_inside: bool = False
    # Whether it goes on with a last message of the assistant.
    prefill: bool = True
    # Whether it takes `temperature` and the like.
    sampling: Literal["always", "without_reasoning", "never"] = "always"
    # The name of the field for the output limit; empty: that of its provider.
    output_field: str = ""
    # Whether it takes tools only if it does not reason.
    tools_without_reasoning: bool = False
    # Whether it takes custom tools, at servers that have them.
    custom_tools: bool = False
    # The one of OpenAI's APIs that offers it; empty: both do, or that is not known.
    api: Literal["", "chat", "responses"] = ""
    # How the Responses API takes back what it thought: all of it, with the ids that it had, or that of the latest turn.
    past_reasoning: Literal["all", "with_ids", "latest"] = "all"
    # Other parameters that it refuses.
    refused: frozenset[str] = frozenset()

    def nearest_effort(self, wanted: str) -> str | None:
        """Returns the effort that is nearest to the one that is wanted, and the higher one of two; None if there is
        none. A model that is to think does, and one that is not to think thinks as little as it can."""
        if self.efforts is None:
            return wanted
        thinking = [effort for effort in self.efforts if effort != "none"]
        if wanted not in EFFORTS or not self.efforts:
            return None
        if wanted in self.efforts or not thinking:
            return wanted if wanted in self.efforts else None
        place = EFFORTS.index(wanted)
        return min(thinking, key=lambda effort: (abs(EFFORTS.index(effort) - place), -EFFORTS.index(effort)))

    def differences(self, other: "Abilities") -> list[str]:
        """Describes what differs from others, each with its name."""
        names = (each.name for each in fields(self))
        return [f"{name} {_said(getattr(self, name))}" for name in names if getattr(self, name) != getattr(other, name)]

    def __str__(self) -> str:
        return ", ".join(self.differences(UNKNOWN))


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | frozenset):
        return "/".join(sorted(value) if isinstance(value, frozenset) else value) or "none"
    return str(value) or "none"


UNKNOWN: Final = Abilities()
