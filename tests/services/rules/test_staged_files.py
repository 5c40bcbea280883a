"""Files that all processes of a fleet take over, or none."""

from services.rules.staged_files import StagedFile, find_obstacles


def test_the_same_version_everywhere_may_be_taken_over() -> None:
    assert find_obstacles({"a": StagedFile("v1"), "b": StagedFile("v1")}) == []


def test_process_with_another_version_or_a_mistake_keeps_all_from_it() -> None:
    assert find_obstacles({"a": StagedFile("v1"), "b": StagedFile("v2")}) == [
        "a: its file has version v1",
        "b: its file has version v2",
    ]
    mistaken = StagedFile(mistakes=("colour: is not a known key",))
    assert find_obstacles({"a": StagedFile("v1"), "b": mistaken}) == ["b: colour: is not a known key"]
