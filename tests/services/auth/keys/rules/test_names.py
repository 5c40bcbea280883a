"""Names of keys that replace others."""

from services.auth.keys.rules.names import name_of_successor


def test_a_successor_has_the_next_number_that_is_free() -> None:
    for name, taken, expected in (
        ("service", (), "service (2)"),
        ("service (2)", (), "service (3)"),
        ("service", ("service (2)", "service (3)"), "service (4)"),
        ("service (9)", ("service (2)",), "service (10)"),
        ("(2)", (), "(2) (2)"),
        ("service (beta)", (), "service (beta) (2)"),
        ("x" * 100, (), "x" * 88 + " (2)"),
        ("x" * 88 + " (2)", ("x" * 88 + " (3)",), "x" * 88 + " (4)"),
    ):
        assert name_of_successor(name, taken) == expected
