import pytest

from cli.output import show_table


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
