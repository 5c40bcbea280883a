"""Tunes the garbage collector, returns free memory to the kernel, and disables core files."""

import ctypes
import gc
import resource
from typing import Final

# The collector's usual threshold of 700 is a few requests' objects: it would hardly ever find garbage.
_OBJECTS_BEFORE_A_LOOK: Final = 20_000
# As in <malloc.h>.
_M_MMAP_THRESHOLD: Final = -3
# More than is read from a connection at once.
_LARGE_BLOCK_BYTES: Final = 512 * 1024


def keep_from_disk() -> None:
    """Disables core files, since they would contain message content; call it first. An operator who needs one to find a
    fault can enable them with prlimit(1)."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def settle() -> None:
    """Frees what only the start needed, and freezes what is left, which the garbage collector then skips. Call it once
    the process has started."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_A_LOOK, *gc.get_threshold()[1:])
    _map_large_blocks()
    give_back()


def _map_large_blocks() -> None:
    """Has large blocks, such as prompts, returned to the kernel as soon as they are freed. By default the C library
    soon keeps them, up to 32 MB each, in a heap that small blocks then prevent from shrinking."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


def give_back() -> None:
    """Returns free heap memory to the kernel, after rare work that took much of it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Other C libraries do so by themselves.
    if trim is not None:
        trim(0)
