"""The rules of forms."""

import pytest

from console.web.forms import Form, Refusal, Rules, parse_dollars


def read(form: Form) -> int:
    with Rules(form) as rules:
        rules.require_name()
        rules.parse(parse_dollars, "amount", "An amount.")
        tip: int = rules.parse(parse_dollars, "tip", "An amount.", 0)
    return tip


def test_a_form_that_breaks_rules_is_refused_with_all_that_is_wrong() -> None:
    with pytest.raises(Refusal) as caught:
        read(Form([("name", " "), ("amount", "five")]))
    assert caught.value.problems == {"name": "A name has 1 to 100 characters.", "amount": "An amount."}
    assert read(Form([("name", "Ada"), ("amount", "$5")])) == 0


def test_amounts_are_read_as_the_language_of_the_visit_writes_them() -> None:
    assert [parse_dollars(given) for given in ("$1,234.50", " 5 ", "-0.25")] == [
        1_234_500_000_000,
        5 * 10**9,
        -25 * 10**7,
    ]
    # A comma before cents is none between thousands: nobody pays a hundredfold.
    for given in ("5,00", "1,23", "1,2345", "1.234,50"):
        with pytest.raises(ValueError, match="amount"):
            parse_dollars(given)


@pytest.mark.usefixtures("french")
def test_amounts_are_read_in_french() -> None:
    given = ("1\N{NO-BREAK SPACE}234,50\N{NO-BREAK SPACE}$", "5,00", "5.00", "1,234")
    assert [parse_dollars(each) for each in given] == [1_234_500_000_000, 5 * 10**9, 5 * 10**9, 1_234_000_000]
    with pytest.raises(ValueError, match="amount"):
        parse_dollars("1,234.50")
