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
