"""Docstrings of the product open with a verb or with the thing itself."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    path
    for folder in ("cli", "console", "edge", "services")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "migrations" not in path.parts
]
# Openings of sentences that have no subject, or that hide it.
WITHOUT_SUBJECT = frozenset(
    [
        "Of",
        "For",
        "By",
        "In",
        "On",
        "To",
        "With",
        "Without",
        "From",
        "Before",
        "After",
        "At",
        "Where",
        "Who",
        "Whoever",
        "Whether",
        "None",
        "So",
        "And",
        "But",
        "Or",
        "It",
    ]
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_have_a_subject(path: Path) -> None:
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented)]
    assert [text for text in docstrings if text and text.split()[0].rstrip(":,") in WITHOUT_SUBJECT] == []
