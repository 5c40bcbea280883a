"""The largest limits there are. Auth refuses more where a limit is set; whoever applies one that is larger all the same
takes it for this, so that no client pays for it."""

from typing import Final

from services.chassis.load.gcra import LARGEST_RATE

# By the names that the messages give them.
LARGEST_LIMITS: Final = {
    "requests_per_minute": 1_000_000,
    "tokens_per_minute": LARGEST_RATE,
    "concurrent_requests": 1_000_000,
}
