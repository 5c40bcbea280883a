import pytest

from services.rules.model_classes import CLASSES, auto_class


@pytest.mark.parametrize(
    ("preferred", "allowed", "chosen"),
    [
        ("forte", "mezzo forte", "forte"),
        ("forte", "mezzo fortissimo", "mezzo"),
        ("fortissimo", "mezzo forte", "forte"),
        ("mezzo", "forte fortissimo", "forte"),
        ("forte", "fortissimo", "fortissimo"),
    ],
)
def test_auto_is_the_most_capable_class_that_is_not_above_the_preferred_one_or_else_the_cheapest(
    preferred: str, allowed: str, chosen: str
) -> None:
    assert auto_class(preferred, allowed.split()) == chosen


@pytest.mark.parametrize("preferred", CLASSES)
def test_auto_is_the_preferred_class_where_all_are_allowed(preferred: str) -> None:
    assert auto_class(preferred, CLASSES) == preferred


@pytest.mark.parametrize(("preferred", "allowed"), [("forte", ()), ("piano", ("mezzo",))])
def test_auto_stays_what_was_preferred_where_nothing_is_allowed_or_the_class_is_unknown(
    preferred: str, allowed: tuple[str, ...]
) -> None:
    assert auto_class(preferred, allowed) == preferred
