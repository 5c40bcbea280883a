import pytest

from services.auth.records import ALL_CLASSES, CLASSES, ClassAllowance


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
    assert ClassAllowance(tuple(allowed.split())).auto_class(preferred) == chosen


@pytest.mark.parametrize("preferred", CLASSES)
def test_auto_is_the_preferred_class_where_all_are_allowed(preferred: str) -> None:
    assert ALL_CLASSES.auto_class(preferred) == preferred


def test_two_allowances_allow_what_both_do() -> None:
    cheap, dear = ClassAllowance(("mezzo", "forte")), ClassAllowance(("forte", "fortissimo"))
    assert cheap.within(dear) == dear.within(cheap) == ClassAllowance(("forte",))
    assert cheap.within(ALL_CLASSES) == ALL_CLASSES.within(cheap) == cheap
    assert "forte" not in ClassAllowance(("mezzo",)).within(dear)
    assert ClassAllowance(("mezzo",)).within(dear) == ClassAllowance(())
