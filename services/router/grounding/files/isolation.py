"""Sandboxes this process down to what it needs to read a document from its stdin.

Documents are untrusted, and their parsers may have vulnerabilities. Each mechanism works by itself if supported:

- Landlock: no file can be opened except Python's own libraries; no signal reaches another process.
- seccomp: only system calls for computing, memory and open files. No sockets, no programs, no other
  processes. Without Landlock, no file can be opened either.
- Namespaces: an empty network namespace.

`isolate` returns which of them are active. Neither the process nor its children can undo them.
"""

import contextlib
import ctypes
import importlib
import os
import platform
import resource
import struct
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

LANDLOCK: Final = "landlock"
SECCOMP: Final = "seccomp"
NAMESPACES: Final = "namespaces"

_libc: Final = ctypes.CDLL(None, use_errno=True)

# The same on every architecture.
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_VERSION: Final = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
# Number of file rights by Landlock version, and the versions that introduced TCP and scopes.
_FILE_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP_SINCE, _SCOPES_SINCE = 4, 6

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_FILTER = 22, 38, 2
_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWNET = 0x08000000, 0x10000000, 0x40000000
_ALLOW, _REFUSE_EPERM = 0x7FFF0000, 0x00050001

# Audit architecture numbers for the filter, and system call numbers by architecture.
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CALLS: Final[dict[str, dict[str, int]]] = {
    "x86_64": {
        "read": 0, "write": 1, "close": 3, "fstat": 5, "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12,
        "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "ioctl": 16, "pread64": 17, "readv": 19,
        "writev": 20, "sched_yield": 24, "mremap": 25, "madvise": 28, "dup": 32, "nanosleep": 35, "getpid": 39,
        "exit": 60, "uname": 63, "fcntl": 72, "getcwd": 79, "gettimeofday": 96, "getrusage": 98, "getuid": 102,
        "getgid": 104, "geteuid": 107, "getegid": 108, "sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202,
        "sched_getaffinity": 204, "getdents64": 217, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
        "clock_nanosleep": 230, "exit_group": 231, "getrandom": 318, "membarrier": 324, "rseq": 334,
    },
    "aarch64": {
        "getcwd": 17, "dup": 23, "fcntl": 25, "ioctl": 29, "close": 57, "getdents64": 61, "lseek": 62, "read": 63,
        "write": 64, "readv": 65, "writev": 66, "pread64": 67, "fstat": 80, "exit": 93, "exit_group": 94, "futex": 98,
        "nanosleep": 101, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115, "sched_getaffinity": 123,
        "sched_yield": 124, "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135,
        "rt_sigreturn": 139, "uname": 160, "getrusage": 165, "gettimeofday": 169, "getpid": 172, "getuid": 174,
        "geteuid": 175, "getgid": 176, "getegid": 177, "gettid": 178, "brk": 214, "munmap": 215, "mremap": 216,
        "mmap": 222, "mprotect": 226, "madvise": 233, "getrandom": 278, "membarrier": 283, "rseq": 293,
    },
}  # fmt: skip
# Calls that open and inspect files; Landlock restricts which.
_FILE_CALLS: Final[dict[str, Sequence[int]]] = {
    # open, stat, lstat, access, readlink, openat, newfstatat, readlinkat, faccessat, statx, faccessat2
    "x86_64": (2, 4, 6, 21, 89, 257, 262, 267, 269, 332, 439),
    # faccessat, openat, readlinkat, newfstatat, statx, faccessat2
    "aarch64": (48, 56, 78, 79, 291, 439),
}


def isolate(preloaded: Iterable[str] = ()) -> list[str]:
    """Activates the sandbox and returns its mechanisms. `preloaded` lists modules to import while files can be read."""
    holds = []
    if _enter_namespaces():
        holds.append(NAMESPACES)
    # Has no effect for root.
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return holds
    # Imported now: without Landlock no file can be opened later.
    has_landlock = landlock_version() > 0
    for module in () if has_landlock else preloaded:
        # Module paths differ between versions of a library.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if has_landlock and _restrict_files(landlock_version()):
        holds.append(LANDLOCK)
    if _filter_calls(may_open=LANDLOCK in holds):
        holds.append(SECCOMP)
    return holds


def landlock_version() -> int:
    """Returns Landlock's ABI version; 0 if the kernel lacks it or a container's filter blocks it."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)))


def readable_folders() -> list[str]:
    """Lists Python's and the system's libraries. Our own code is excluded: data may be stored beside it."""
    paths = sysconfig.get_paths()
    system = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
    return sorted({paths["stdlib"], paths["platstdlib"], *library_folders(), *system})


def library_folders() -> list[str]:
    """Lists the folders of installed packages: `site-packages` or a distribution's equivalent."""
    return [folder for folder in sys.path if folder.endswith("-packages")]


def _enter_namespaces() -> bool:
    """Enters new namespaces; many containers and kernels without user namespaces refuse."""
    return bool(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC) == 0)


def _restrict_files(version: int) -> bool:
    every_right = (1 << _FILE_RIGHTS[min(version, max(_FILE_RIGHTS))]) - 1
    tcp = 0b11 if version >= _TCP_SINCE else 0
    scopes = 0b11 if version >= _SCOPES_SINCE else 0
    handled = struct.pack("=QQQ", every_right, tcp, scopes)
    size = 24 if version >= _SCOPES_SINCE else 16 if version >= _TCP_SINCE else 8
    ruleset = _libc.syscall(_LANDLOCK_CREATE_RULESET, handled, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return False
    try:
        for folder in readable_folders():
            _allow_reading(ruleset, folder)
        return bool(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _allow_reading(ruleset: int, path: str) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    rights = _READ_FILE | (_READ_DIR if Path(path).is_dir() else 0)
    # If the rule is refused, the folder stays inaccessible.
    _libc.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, opened), 0)
    os.close(opened)


def _filter_calls(*, may_open: bool) -> bool:
    machine = platform.machine()
    if machine not in _CALLS:
        return False
    allowed = [*_CALLS[machine].values(), *(_FILE_CALLS[machine] if may_open else ())]
    program = _program(_ARCHITECTURES[machine], allowed)
    buffer = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
    # struct sock_fprog: number of instructions, and their address.
    described = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    return bool(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, described, 0, 0) == 0)


def _program(architecture: int, allowed: Sequence[int]) -> list[bytes]:
    """Builds a classic BPF filter that refuses with EPERM all but the listed calls of our architecture."""
    load, jump_if_equal, jump_if_above, give = 0x20, 0x15, 0x25, 0x06

    def instruction(code: int, if_so: int, if_not: int, operand: int) -> bytes:
        return struct.pack("=HBBI", code, if_so, if_not, operand)

    count = len(allowed)
    return [
        instruction(load, 0, 0, 4),
        # Other architectures have other call numbers.
        instruction(jump_if_equal, 0, count + 2, architecture),
        instruction(load, 0, 0, 0),
        instruction(jump_if_above, count, 0, max(allowed)),
        *(instruction(jump_if_equal, count - number, 0, call) for number, call in enumerate(allowed)),
        instruction(give, 0, 0, _REFUSE_EPERM),
        instruction(give, 0, 0, _ALLOW),
    ]
