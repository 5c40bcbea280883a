"""A process's memory: what it needs no longer once it serves, and that none of it is left in a file."""

import contextlib
import ctypes
import gc
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

# A request makes hundreds that live until it ends: who looks after every 700, as is usual, hardly ever finds garbage.
_OBJECTS_BEFORE_A_LOOK: Final = 20_000

_MADV_DONTNEED: Final = 4


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
    _let_go_of_libraries()
    give_back()


def give_back() -> None:
    """After something that took much and comes seldom: what is free goes back to the kernel."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Other C libraries give back by themselves.
    if trim is not None:
        trim(0)


def _let_go_of_libraries() -> None:
    """Of their code and constants, most of which only the start has read. The kernel keeps them in its cache of files
    for as long as it has room: what is used comes back from there, some pages at a time."""
    advise = ctypes.CDLL(None).madvise
    for part in _unchanged_parts():
        begin, end = (int(address, 16) for address in part.addresses.split("-"))
        advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_DONTNEED)


class _Mapping(NamedTuple):
    addresses: str
    permissions: str
    file: str
    # Whether any of it is not as it is in the file.
    is_changed: bool


def _unchanged_parts() -> Iterator[_Mapping]:
    """Nothing that was ever written to, or what was written would be lost. A loader writes to some parts of a library
    before it makes them read-only. And it maps the part that stays writable last: until then, what looks like a part
    that is only read may be about to give way to it."""
    mappings = list(_mappings_of_files())
    loaded = {mapping.file for mapping in mappings if mapping.permissions == "rw-p"}
    for mapping in mappings:
        if mapping.permissions in ("r--p", "r-xp") and mapping.file in loaded and not mapping.is_changed:
            yield mapping


def _mappings_of_files() -> Iterator[_Mapping]:
    addresses = permissions = file = ""
    # Not on Linux: none are told.
    with contextlib.suppress(OSError), Path("/proc/self/smaps").open() as described:
        for line in described:
            head, *words = line.split(maxsplit=5)
            if not head.endswith(":"):
                addresses, permissions, file = head, words[0], words[-1]
            elif head == "Anonymous:" and file.startswith("/"):
                yield _Mapping(addresses, permissions, file, is_changed=words[0] != "0")
