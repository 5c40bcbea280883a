"""Converts decimal dollars to nano-dollars and back, never through a float."""

import re

NANOS_PER_DOLLAR = 1_000_000_000
DECIMALS = 9

# Balances are 64-bit integers.
LARGEST_NANOS = 2**63 - 1
# Per grant or adjustment: it catches a slip in the zeros; larger amounts are granted in parts.
LARGEST_BOOKING_NANOS = 1_000_000 * NANOS_PER_DOLLAR

_AMOUNT = re.compile(r"(?P<sign>[+-]?)(?P<dollars>[0-9]{0,10})(?:\.(?P<fraction>[0-9]{0,9}))?")


def parse_usd(text: str) -> int:
    """Returns nano-dollars; ValueError states the expected format."""
    match = _AMOUNT.fullmatch(text)
    if match is None or not (match["dollars"] or match["fraction"]):
        raise ValueError("an amount must be in dollars with up to nine decimals, such as 5.00")
    nanos = int(match["dollars"] or "0") * NANOS_PER_DOLLAR + int((match["fraction"] or "").ljust(DECIMALS, "0"))
    if nanos > LARGEST_NANOS:
        raise ValueError(f"an amount must be at most {format_usd(LARGEST_NANOS)}")
    return -nanos if match["sign"] == "-" else nanos


def format_usd(nanos: int) -> str:
    """Formats exactly, with at least two decimals: 5.00, 4.999999999, -1.25."""
    dollars, rest = divmod(abs(nanos), NANOS_PER_DOLLAR)
    fraction = f"{rest:0{DECIMALS}d}".rstrip("0").ljust(2, "0")
    return f"{'-' if nanos < 0 else ''}{dollars}.{fraction}"
