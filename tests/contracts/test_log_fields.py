"""What is logged has fields that may be: another one raises where it is logged, which may be seldom."""

import ast

from services.chassis.telemetry.log import ALLOWED_FIELDS, Log
from tests.contracts.product import ROOT, product_modules

METHODS = {Log.debug.__name__, Log.info.__name__, Log.warning.__name__, Log.failure.__name__}


def is_of_log(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr in METHODS
        and ast.unparse(function.value).rpartition(".")[2].strip("_") == "log"
    )


def test_log_lines_have_fields_that_may_be_logged() -> None:
    texts = {module: (ROOT / module).read_text() for module in product_modules()}
    calls = [
        (module, node)
        for module, text in texts.items()
        if "log." in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and is_of_log(node.func)
    ]
    assert len(calls) > 100
    others = [
        f"{module}:{call.lineno}: {field.arg}"
        for module, call in calls
        for field in call.keywords
        if field.arg is not None and field.arg not in ALLOWED_FIELDS
    ]
    assert not others
