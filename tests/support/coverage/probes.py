"""Statements inserted into a module that note which of its lines run.

Python calls a tracer for every line of everything that runs: tests, libraries and Hypothesis among them. A probe costs
one store into a list, in measured modules alone.
"""

import ast
from types import CodeType

# The list that probes write into. Names with underscores at both ends are not changed inside of classes.
EXECUTED = "__executed_lines__"


def compile_with_probes(source: bytes, path: str) -> CodeType:
    """Compiles a module that needs the global `EXECUTED`: a list with an item for each of its lines, and one before."""
    return compile(_Probes().visit(ast.parse(source, path)), path, "exec", dont_inherit=True)


class _Probes(ast.NodeTransformer):
    """Puts a probe before each statement, which notes the lines that lead to it and have no statement of their own."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            # The body of a lambda is an expression.
            if isinstance(block, list):
                setattr(node, name, _with_probes(block, _lines_of_clause(node)))
        return node


def _with_probes(block: list[ast.stmt], lines: list[int]) -> list[ast.stmt]:
    probed: list[ast.stmt] = []
    for statement in block:
        lines += [decorator.lineno for decorator in getattr(statement, "decorator_list", ())]
        lines.append(statement.lineno)
        if not _must_be_first(statement):
            probed.append(_probe(lines, statement))
            lines = []
        probed.append(statement)
    return probed


def _lines_of_clause(node: ast.AST) -> list[int]:
    """Returns the line of `except` or `case`, which counts as run if its block does."""
    match node:
        case ast.ExceptHandler():
            return [node.lineno]
        case ast.match_case():
            return [node.pattern.lineno]
    return []


def _must_be_first(statement: ast.stmt) -> bool:
    """Says if a statement has its meaning only at the beginning, like a docstring. The next probe notes its line."""
    match statement:
        case ast.ImportFrom(module="__future__") | ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def _probe(lines: list[int], statement: ast.stmt) -> ast.stmt:
    probe = ast.parse("".join(f"{EXECUTED}[{line}] = " for line in lines) + "True").body[0]
    for node in ast.walk(probe):
        ast.copy_location(node, statement)
    return probe
