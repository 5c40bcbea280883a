from services.chassis.changes import (
    UNREADABLE,
    Change,
    Settings,
    changes_between,
    from_changes,
    from_json,
    to_changes,
    to_json,
)

CHANGES = [
    Change("tokens_per_minute", None, 2**53 + 1),
    Change("search", True, False),
    Change("role", "member", "owner"),
    Change("scopes", (), ("inference", "models")),
]


def test_changes_are_the_same_after_json_and_after_messages() -> None:
    assert list(from_json(to_json(CHANGES))) == CHANGES
    assert to_changes(from_changes(CHANGES)) == CHANGES


def test_only_settings_that_differ_are_changes() -> None:
    before: Settings = {"search": True, "role": "member", "memory": None}
    after: Settings = {"search": True, "role": "owner", "usage": 1}
    assert changes_between(before, after) == [Change("role", "member", "owner"), Change("usage", None, 1)]


def test_what_cannot_be_read_is_told_to_be_so() -> None:
    assert from_json(None) == ()
    for text in ("not JSON", '[{"field": "role", "before": {}, "after": null}]', "{}"):
        assert from_json(text) == UNREADABLE
