"""The tests of a module are found by its path: those of `edge/billing/hold.py` in `tests/edge/billing/test_hold.py`.

Modules with tests elsewhere, or with nothing to test, stand in `exceptions/` with the reason.
"""

from pathlib import Path

from tests.contracts.product import ROOT, exceptions, product_modules


def path_of_tests(module: Path) -> Path:
    return Path("tests") / module.parent / f"test_{module.name}"


def test_each_module_has_path_of_tests_its_name_or_a_reason() -> None:
    modules = {str(path): path_of_tests(path) for path in product_modules() if path.name != "__init__.py"}
    without = {path for path, tests in modules.items() if not (ROOT / tests).exists()}
    reasons = {path: reason for package in exceptions() for path, reason in package["without_tests"].items()}
    assert sorted(without - reasons.keys()) == []
    assert sorted(reasons.keys() - without) == [], "may go from the exceptions"
    assert all(len(reason) > 10 for reason in reasons.values())
