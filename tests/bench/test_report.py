import io

from bench.report import Progress, Row, doubts, table


def row(case: str, others_share: float = 0.0, measurement: str = "speed") -> Row:
    return Row(measurement, case, {"a/s": 1234.5, "b ms": 1.234, "c": None}, others_share)


def test_table_has_a_block_for_each_measurement() -> None:
    assert table([row("slow"), row("quick", 0.25), row("soft", measurement="sound")]).splitlines() == [
        "speed    a/s  b ms  c  others",
        "slow   1,234  1.23  -      0%",
        "quick  1,234  1.23  -     25%",
        "",
        "sound    a/s  b ms  c  others",
        "soft   1,234  1.23  -      0%",
    ]


def test_figures_from_a_busy_machine_are_doubted() -> None:
    assert doubts([row("slow"), row("quick", 0.1)]) is None
    doubt = doubts([row("slow"), row("quick", 0.25)])
    assert doubt is not None
    assert "25%" in doubt


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


def test_nothing_is_said_where_there_is_no_terminal() -> None:
    assert walk_through(io.StringIO()) == ""
