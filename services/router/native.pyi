from collections.abc import Callable

class RunningCount:
    def __init__(self, count: Callable[[str], int], /) -> None: ...
    @property
    def tokens(self) -> int: ...
    @property
    def word(self) -> str: ...
    def add(self, piece: str, /) -> int: ...
    def copy(self) -> RunningCount: ...

class WordCounts:
    """Counts texts by the counts of their words, which it remembers by digests with a key of 16 bytes."""

    def __init__(self, count: Callable[[str], int], key: bytes, /) -> None: ...
    def count(self, text: str, /) -> int:
        """Returns the tokens of a text: what `count` returns."""

class ChunkPosition:
    is_between: bool
    def begin(self) -> None: ...
    def end(self) -> None: ...

def read_leading_texts(body: bytes, /) -> tuple[list[str], int]:
    """Returns the texts of the events that a body begins with, up to the first that has anything else, and where they
    end."""

def pack_read(
    read: bytes,
    contents: RunningCount,
    output_tokens: int,
    sure_tokens: int,
    prompt_tokens: int,
    max_tokens: int,
    /,
) -> tuple[bytes, int, int] | None:
    """Returns the packed piece of a read of nothing but texts, the output tokens with it, and the bytes of its body.
    None, with nothing counted, if it has to be parsed, or may have more than `sure_tokens`."""
