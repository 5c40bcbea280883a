import click
import pytest

from cli.values import USD, OneOrMoreOf


def test_amounts_are_exact_and_at_most_a_million_dollars() -> None:
    assert USD.convert("0.000000001", None, None) == 1
    assert USD.convert("-1000000", None, None) == -1_000_000 * 10**9
    for text in ("1000000.000000001", "five", "1.0000000001"):
        with pytest.raises(click.BadParameter):
            USD.convert(text, None, None)


def test_names_are_separated_by_commas_and_all_of_them_known() -> None:
    kind = OneOrMoreOf(("mezzo", "forte"))
    assert kind.convert("forte, mezzo", None, None) == ["forte", "mezzo"]
    for text in ("forte,loud", "", "forte,"):
        with pytest.raises(click.BadParameter, match=r"choose from mezzo, forte\."):
            kind.convert(text, None, None)
