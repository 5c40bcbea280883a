"""The compiled part of the router, or what stands in for it: docs/decisions/0060-compiled-chunks.md.

Where there was no compiler, reads and events are declined, and so everything is parsed in Python.
"""

from services.router.prompts.running_count import PythonRunningCount

__all__ = ["ChunkPosition", "RunningCount", "pack_read", "read_leading_texts"]


class PythonChunkPosition:
    """Is never between two chunks, so that no read is offered to `pack_read`."""

    is_between = False

    def begin(self) -> None:
        pass

    end = begin


def pack_no_read(*_: object) -> None:
    return None


def read_no_leading_texts(_: bytes) -> tuple[list[str], int]:
    return [], 0


try:
    from services.router.native import ChunkPosition, RunningCount, pack_read, read_leading_texts
except ImportError:
    ChunkPosition, RunningCount = PythonChunkPosition, PythonRunningCount  # type: ignore[assignment,misc]
    pack_read, read_leading_texts = pack_no_read, read_no_leading_texts
