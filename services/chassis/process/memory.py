"""A process's memory: what it needs no longer once it serves, and that none of it is left in a file."""

import ctypes
import gc
import resource
from typing import Final

# A request makes hundreds that live until it ends: who looks after every 700, as is usual, hardly ever finds garbage.
_OBJECTS_BEFORE_A_LOOK: Final = 20_000


def keep_from_disk() -> None:
    """Call it first. A process that crashes must not leave a core file behind: what people said is in it. Whoever needs
    one to find a fault can still ask for it, with prlimit(1)."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def settle() -> None:
    """After the start: gives back what only that needed. What it made is there to stay, and is not looked through for
    garbage again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_A_LOOK, *gc.get_threshold()[1:])
    give_back()


def give_back() -> None:
    """After something that took much and comes seldom: what is free goes back to the kernel."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Other C libraries give back by themselves.
    if trim is not None:
        trim(0)
