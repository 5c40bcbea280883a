"""A value of each parameter that models get as it is."""

from typing import Any, Final

FORWARDED: Final[dict[str, Any]] = {
    "temperature": 0.25,
    "top_p": 0.25,
    "stop": ["END"],
    "seed": 7,
    "presence_penalty": 0.25,
    "frequency_penalty": 0.25,
    "reasoning_effort": "low",
    "verbosity": "low",
    "top_k": 5,
    "min_p": 0.5,
    "repetition_penalty": 1.5,
}
