from services.router.providers.translation.extra import merged


def test_tables_are_put_together_and_what_is_in_both_is_the_added_one() -> None:
    ours = {"a": 1, "table": {"kept": 1, "changed": 1, "deep": {"x": 1}}}
    added = {"table": {"changed": 2, "deep": {"y": 2}}, "b": [2]}
    assert merged(ours, added) == {
        "a": 1,
        "b": [2],
        "table": {"kept": 1, "changed": 2, "deep": {"x": 1, "y": 2}},
    }
    assert ours["table"] == {"kept": 1, "changed": 1, "deep": {"x": 1}}
