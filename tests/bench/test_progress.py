import io

from bench.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def walk_through(stream: io.StringIO) -> str:
    progress = Progress(stream, steps=2)
    # Each expected to take so long that no machine finds time to fill its part of the bar.
    progress.step("first", expected_s=1e9)
    progress.step("second", expected_s=1e9)
    progress.clear()
    return stream.getvalue()


def test_terminal_sees_which_step_of_how_many_is_under_way() -> None:
    _, first, second, end = walk_through(Terminal()).split("\r\x1b[K")
    assert first == f"[{'.' * 30}] 1/2 first"
    assert second == f"[{'#' * 15}{'.' * 15}] 2/2 second"
    assert end == ""


def test_nothing_is_said_where_nobody_looks() -> None:
    assert walk_through(io.StringIO()) == ""
