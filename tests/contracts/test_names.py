"""One class name means one thing: no public class of the product is called like another."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.contracts.product import ROOT, product_modules

# Classes there are called like the schemas of the public API.
PUBLIC_SCHEMAS = Path("edge/api")


def modules_by_class_name() -> dict[str, list[str]]:
    modules = defaultdict(list)
    for path in product_modules():
        if path.parent == PUBLIC_SCHEMAS:
            continue
        for node in ast.parse((ROOT / path).read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(str(path))
    return modules


def test_every_public_class_has_a_name_of_its_own() -> None:
    modules = modules_by_class_name()
    assert "LegatoError" in modules
    assert {name: where for name, where in modules.items() if len(where) > 1} == {}
