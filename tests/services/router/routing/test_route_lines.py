"""The lines on which keys of a routes file stand."""

from services.router.routing.route_lines import KeyLines, Mistake

TEXT = """character = "legato-1"
[providers.host]  # Ours.
kind = "openai"
[models."vendor/big.1"]
cost = { input = "1.00" }
[classes]
mezzo = { models = ["a"] }
forte.models = ["a"]
[[lists]]
"""


def test_a_key_is_found_where_it_is_given_and_else_what_would_have_it() -> None:
    lines = KeyLines(TEXT)
    for key, line in (
        ("character", 1),
        ("providers.host.kind", 3),
        ("providers.host.base_url", 2),
        ("models.vendor/big.1.cost.input", 5),
        ("models.vendor/big.1.name", 4),
        ("classes.mezzo.models", 7),
        ("classes.forte.models", 8),
        ("classes.fortissimo", 6),
        ("lists.1.x", 9),
        ("nowhere", 0),
    ):
        assert lines.find(key) == line, key


def test_mistakes_have_lines_also_where_the_text_is_no_toml() -> None:
    told = ["providers.host.kind: is wrong", "Cannot overwrite a value (at line 3, column 5)", "all of it"]
    assert KeyLines(TEXT).place(told) == [
        Mistake(3, "providers.host.kind", "is wrong"),
        Mistake(3, "", "Cannot overwrite a value"),
        Mistake(0, "", "all of it"),
    ]
