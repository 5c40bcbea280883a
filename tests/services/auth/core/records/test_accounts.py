from services.auth.core.records.accounts import ALL_CLASSES, ClassAllowance


def test_two_allowances_allow_what_both_do() -> None:
    cheap, dear = ClassAllowance(("mezzo", "forte")), ClassAllowance(("forte", "fortissimo"))
    assert cheap.within(dear) == dear.within(cheap) == ClassAllowance(("forte",))
    assert cheap.within(ALL_CLASSES) == ALL_CLASSES.within(cheap) == cheap
    assert "forte" not in ClassAllowance(("mezzo",)).within(dear)
    assert ClassAllowance(("mezzo",)).within(dear) == ClassAllowance(())
