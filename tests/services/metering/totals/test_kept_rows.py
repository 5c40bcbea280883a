"""Rows that are kept up to a number."""

from services.metering.totals.kept_rows import KeptRows


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    # Each of them counts as a row itself.
    kept: KeptRows[str, str] = KeptRows(rows_most=8)
    kept.put("first", "one", 3)
    kept.put("second", "two", 3)
    assert kept.get("first") == "one"
    kept.put("third", "three", 3)
    assert kept.get("second") is None
    assert kept.items() == [("first", "one"), ("third", "three")]


def test_what_is_put_anew_takes_the_place_of_what_was_there() -> None:
    kept: KeptRows[str, str] = KeptRows(rows_most=8)
    for rows in (7, 2, 3):
        kept.put("first", str(rows), rows)
    kept.put("second", "two", 3)
    assert kept.items() == [("first", "3"), ("second", "two")]


def test_what_is_larger_than_all_room_is_not_kept() -> None:
    kept: KeptRows[str, str] = KeptRows(rows_most=8)
    kept.put("first", "one", 3)
    kept.put("second", "two", 8)
    assert kept.items() == []
    kept.put("third", "three", 7)
    assert kept.get("third") == "three"
