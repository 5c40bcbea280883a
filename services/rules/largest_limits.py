"""The largest limits that a key or an account may have.

Auth rejects larger ones; a larger one that was stored earlier is clamped to these where it is applied, so that the
client is still served.
"""

from typing import Final

from services.chassis.load.gcra import LARGEST_RATE

# Keyed by the protobuf field names.
LARGEST_LIMITS: Final = {
    "requests_per_minute": 1_000_000,
    "tokens_per_minute": LARGEST_RATE,
    "concurrent_requests": 1_000_000,
}
