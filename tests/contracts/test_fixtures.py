"""Fixtures live as long as their scope says."""

from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_fixtures_of_a_folder_end_with_its_tests() -> None:
    """Pytest takes the scope "package" of a folder without `__init__.py` for the whole session: services would wait
    until its end, and a browser's event loop would run during asynchronous tests."""
    folders = [each.parent for each in TESTS.rglob("conftest.py") if 'scope="package"' in each.read_text()]
    assert folders
    for folder in folders:
        assert (folder / "__init__.py").exists(), folder.relative_to(TESTS)
