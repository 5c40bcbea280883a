"""What tests order of the fork server."""

from typing import Final

import msgspec

LARGEST_ORDER_BYTES: Final = 1 << 20
# Not a module: the command, whose processes are forks too.
LEGATO: Final = "legato"


class Order(msgspec.Struct, frozen=True):
    """Fork a process that runs a module, or `legato` with arguments. Three descriptors come with it: a pipe, which is
    told the id and, in the end, the exit code; the output, and where errors go."""

    module: str
    arguments: list[str]
    environ: dict[str, str]
