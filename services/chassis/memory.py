"""What a process needs no longer, once it serves."""

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# A request makes hundreds that live until it ends: who looks after every 700, as is usual, hardly ever finds garbage.
_OBJECTS_BEFORE_A_LOOK: Final = 20_000

_MADV_DONTNEED: Final = 4


def settle() -> None:
    """After the start: gives back what only that needed. What it made is there to stay, and is not looked through for
    garbage again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_A_LOOK, *gc.get_threshold()[1:])
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Other C libraries give back by themselves.
    if trim is not None:
        trim(0)


def let_go_of_file(path: str) -> None:
    """Of a library's pages that were read at its start and hardly will be again; the kernel brings those that are.

    Only where they are as they are in the file: a loader writes to some of them before it makes them read-only."""
    advise = ctypes.CDLL(None).madvise
    for addresses in _unchanged_mappings(path):
        begin, end = (int(address, 16) for address in addresses.split("-"))
        advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_DONTNEED)


def _unchanged_mappings(path: str) -> Iterator[str]:
    try:
        described = Path("/proc/self/smaps").read_text()
    except OSError:
        # Not on Linux.
        return
    addresses = None
    for line in described.splitlines():
        head, *words = line.split(maxsplit=5)
        if not head.endswith(":"):
            is_wanted = words[0] == "r--p" and words[-1] == path
            addresses = head if is_wanted else None
        elif head == "Anonymous:" and words[0] == "0" and addresses is not None:
            yield addresses
