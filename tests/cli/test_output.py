import io

import pytest

from cli.output import Bar, show_table


def test_columns_stand_below_each_other_whatever_script_a_name_is_in(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["name", "class"], [["Ada", "forte"], ["名前", "forte"], ["Zoe\u0308", "forte"], ["🎼", "forte"]])
    # As wide as they are shown: letters of the second take two columns each, the fourth of the third takes none.
    assert capsys.readouterr().out.splitlines() == [
        "name  class",
        "Ada   forte",
        "名前  forte",
        "Zoe\u0308   forte",
        "🎼    forte",
    ]


def test_numbers_stand_on_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["class", "requests"], [["mezzo", 7], ["forte", 1_000]])
    assert capsys.readouterr().out.splitlines() == ["class  requests", "mezzo         7", "forte      1000"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_grows_and_leaves_nothing_behind() -> None:
    terminal = Terminal()
    bar = Bar(terminal)
    for done in (0, 0, 50, 100):
        bar.show("reading", done, 100)
    bar.close()
    shown = terminal.getvalue().split("\r\x1b[K")[1:]
    assert [text.count("#") for text in shown] == [0, 15, 30, 0]
    assert shown[1].endswith(" 50% reading")
    assert shown[-1] == ""


def test_stderr_that_was_closed_is_no_reason_to_fail() -> None:
    bar = Bar(None)
    bar.show("reading", 1, 2)
    bar.close()


def test_nothing_is_written_where_there_is_no_terminal() -> None:
    pipe = io.StringIO()
    bar = Bar(pipe)
    bar.show("reading", 1, 2)
    bar.close()
    assert pipe.getvalue() == ""
