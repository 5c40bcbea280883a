"""The classes are listed in one module, services/rules/model_classes.py."""

import re
from pathlib import Path

from services.rules import model_classes

ROOT = Path(__file__).parents[2]
PRODUCT = ("bench", "cli", "console", "edge", "services")
LIST = re.compile(r""""mezzo",\s*"forte",\s*"fortissimo\"""")


def test_the_classes_are_listed_in_one_module() -> None:
    modules = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in modules if LIST.search(path.read_text())] == [Path(model_classes.__file__)]
