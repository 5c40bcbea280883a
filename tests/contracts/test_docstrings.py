"""Docstrings of the product open with a verb or with the thing itself."""

import ast
from pathlib import Path

from tests.contracts.product import ROOT, product_modules

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
        "What",
        "When",
        "Which",
        "How",
        "That",
    ]
)


def docstrings(path: Path) -> list[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return [text for node in nodes if isinstance(node, documented) and (text := ast.get_docstring(node))]


def test_docstrings_have_a_subject() -> None:
    wrong = [
        (str(path), text)
        for path in product_modules()
        for text in docstrings(path)
        if text.split()[0].rstrip(":,") in WITHOUT_SUBJECT
    ]
    assert wrong == []
