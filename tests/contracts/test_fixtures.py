"""Fixtures live as long as their scope says."""

from tests.conftest import SHARED_FOLDERS, TESTS

FOLDERS = [each.parent for each in TESTS.rglob("conftest.py") if 'scope="package"' in each.read_text()]


def test_fixtures_of_a_folder_end_with_its_tests() -> None:
    """Pytest takes the scope "package" of a folder without `__init__.py` for the whole session: services would wait
    until its end, and a browser's event loop would run during asynchronous tests."""
    assert FOLDERS
    for folder in FOLDERS:
        assert (folder / "__init__.py").exists(), folder.relative_to(TESTS)


def test_one_worker_runs_the_tests_of_a_folder_that_share_a_fixture() -> None:
    assert {folder.relative_to(TESTS).parts[0] for folder in FOLDERS} == set(SHARED_FOLDERS)
