"""Generates request ids."""

import os
import time


def new_request_id() -> str:
    """Returns a version 7 UUID: these sort by time, so that neighbours in time are neighbours in an index."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high = milliseconds << 16 | 0x7000 | random >> 68
    low = 1 << 63 | random & (1 << 62) - 1
    return f"{high << 64 | low:032x}"
