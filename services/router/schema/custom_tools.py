"""Reads which functions of a request stand for custom tools."""

from typing import Final

import msgspec
from msgspec import Raw

from services.router.schema.parameters import decoded
from services.rules.custom_tools import MARK, CustomForm

_MARK: Final = MARK.encode()
_raw_tools = msgspec.json.Decoder(list[Raw])
_functions = msgspec.json.Decoder(dict[str, Raw])
_forms = msgspec.json.Decoder(CustomForm)
_names = msgspec.json.Decoder(str)


def take_marks(tools_json: bytes) -> tuple[bytes, dict[str, CustomForm]]:
    """Returns the tools without marks, and the forms of those that had one, by their names. Others keep their bytes."""
    if _MARK not in tools_json:
        return tools_json, {}
    forms: dict[str, CustomForm] = {}
    kept = [_without_mark(raw, forms) for raw in decoded(_raw_tools, tools_json, "tools", "tools")]
    return msgspec.json.encode(kept), forms


def _without_mark(raw_tool: Raw, forms: dict[str, CustomForm]) -> object:
    if _MARK not in bytes(raw_tool):
        return raw_tool
    tool = decoded(_functions, raw_tool, "tools", "tools")
    function = decoded(_functions, tool.get("function", b""), "tools", "tools")
    if (mark := function.pop(MARK, None)) is None:
        return raw_tool
    name = decoded(_names, function.get("name", b""), "tools", "tools")
    forms[name] = decoded(_forms, mark, "tools", "tools")
    return {**tool, "function": function}
