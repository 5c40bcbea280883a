"""Every test that `make test` leaves out is in a lane of `make test-long`, and CI runs every lane on each merge."""

import re
from typing import Final

from ruamel.yaml import YAML

from tests.contracts.product import ROOT

MAKEFILE: Final = (ROOT / "Makefile").read_text()
LONG: Final = re.compile(r"\bmark\.(long|sqlite_suffices)\b")


def folders_by_lane() -> dict[str, list[str]]:
    found = re.findall(r"^(test-[a-z]+): \.venv/dev.*\n\t@\$\(call run_long,([^)]*)\)", MAKEFILE, re.MULTILINE)
    return {lane: folders.split() for lane, folders in found}


def test_every_module_with_a_long_test_is_in_the_folder_of_one_lane() -> None:
    modules = [path for path in (ROOT / "tests").rglob("test_*.py") if LONG.search(path.read_text())]
    folders = [ROOT / folder for folders in folders_by_lane().values() for folder in folders]
    lanes = {str(path.relative_to(ROOT)): sum(path.is_relative_to(each) for each in folders) for path in modules}
    assert lanes
    assert {path: count for path, count in lanes.items() if count != 1} == {}


def test_ci_and_make_run_every_lane() -> None:
    jobs = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    lanes = folders_by_lane()
    assert sorted(jobs["long"]["strategy"]["matrix"]["lane"]) == sorted(lanes)
    [together] = re.findall(r"^test-long: (.*?) ##", MAKEFILE, re.MULTILINE)
    assert sorted(together.split()) == sorted(lanes)
