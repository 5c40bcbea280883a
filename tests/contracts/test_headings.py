"""A product module is one concept: nothing in its middle is the heading of another part.

A heading is a string that is no docstring, or a comment that stands alone between blank lines. A comment on a
definition stands directly above it; one that introduces a further part says that the part is a module of its own.
"""

import ast
import io
import re
import tokenize

import pytest

from tests.contracts.product import ROOT, product_modules

# Most modules have no comment behind an empty line, and need not be cut into tokens.
AFTER_EMPTY_LINE = re.compile(r"^[ \t]*\n[ \t]*#", re.MULTILINE)
# Comments for tools, such as "ruff: noqa".
DIRECTIVE = re.compile(r"#\s*(ruff|mypy|type|fmt):")


def headings(source: str) -> list[str]:
    return [*_strings(source), *_lone_comments(source)]


def _strings(source: str) -> list[str]:
    """The strings that are statements, except docstrings."""
    parts = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for node in ast.walk(ast.parse(source)):
        for statement in node.body[1:] if isinstance(node, parts) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    found.append(text)
    return found


def _lone_comments(source: str) -> list[str]:
    if not AFTER_EMPTY_LINE.search(source):
        return []
    lines = source.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    rows = [token.start[0] - 1 for token in tokens if token.type == tokenize.COMMENT]
    blocks: list[list[int]] = []
    for row in rows:
        if not lines[row].strip().startswith("#"):
            continue
        if blocks and blocks[-1][-1] == row - 1:
            blocks[-1].append(row)
        else:
            blocks.append([row])
    found = []
    for block in blocks:
        text = "\n".join(lines[block[0] : block[-1] + 1])
        around = [*lines[max(block[0] - 1, 0) : block[0]], *lines[block[-1] + 1 : block[-1] + 2]]
        if not any(line.strip() for line in around) and not DIRECTIVE.search(text):
            found.append(text)
    return found


def test_no_module_has_a_heading_in_its_middle() -> None:
    found = {str(path): headings((ROOT / path).read_text()) for path in product_modules()}
    assert {path: texts for path, texts in found.items() if texts} == {}


@pytest.mark.parametrize(
    "heading", ['"""Counts objects in JSON."""', "# Counts objects in JSON.", "# Counts objects.\n#\n# It does."]
)
def test_headings_are_found(heading: str) -> None:
    assert len(headings(f'"""A module."""\n\nA = 1\n\n\n{heading}\n\n\nB = 2\n')) == 1


@pytest.mark.parametrize(
    "source",
    [
        '"""A module."""\n\n# Why it is one.\nA = 1\n',
        '"""A module."""\n\n# Names come from our own tables:\n# ruff: noqa: S608\n\nA = 1\n',
        'def read() -> str:\n    """Reads."""\n    # Why.\n    return """\n\n# not a heading\n\n"""\n',
    ],
)
def test_docstrings_comments_on_definitions_and_directives_are_no_headings(source: str) -> None:
    assert headings(source) == []
