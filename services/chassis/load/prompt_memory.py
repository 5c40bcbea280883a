"""The memory of a process for prompts: those of chats whose answers have not begun, or may go on elsewhere, since
another attempt may need them. A process has one copy of each."""

from typing import Annotated, Final

import msgspec

from services.chassis.load.fair_budget import FairBudget
from services.chassis.telemetry.metrics import Registry

# With what a process needs besides, and with the copies that are made while prompts are received, parsed and sent, this
# stays below a gigabyte.
PROMPT_BYTES: Final = 256 * 1024 * 1024
# Room for a few of the largest: one account may hold two thirds of it.
LEAST_PROMPT_BYTES: Final = 64 * 1024 * 1024
# Not charged, for each prompt. An ordinary one has less.
UNCHARGED_BYTES: Final = 16 * 1024

PromptBytes = Annotated[int, msgspec.Meta(ge=LEAST_PROMPT_BYTES)]


def open_prompt_memory(prompt_bytes: int = PROMPT_BYTES) -> FairBudget:
    return FairBudget("Memory for a prompt of this size", prompt_bytes, uncharged=UNCHARGED_BYTES)


def show_prompt_memory(registry: Registry, prompt_memory: FairBudget) -> None:
    registry.gauge(
        "legato_prompt_bytes", "Prompts of chats whose answers have not begun or may go on.", lambda: prompt_memory.used
    )
    registry.gauge("legato_prompt_bytes_limit", "Limit of these.", lambda: prompt_memory.capacity)
    refused = "Chats refused because their account used its share of that limit."
    registry.counter("legato_prompts_refused", refused, lambda: prompt_memory.refused)
