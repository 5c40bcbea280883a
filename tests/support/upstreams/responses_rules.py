"""Rules of the Responses API for single items and tools, and how it says that one is broken."""

from typing import Any, Final

from tests.support.upstreams.openai_models import refusal

LONGEST_CALL_ID: Final = 64


class Refused(Exception):
    def __init__(self, message: str, param: str | None, code: str | None, status: int) -> None:
        super().__init__(message)
        self.message = message
        self.reply = refusal(message, param, code, status=status)


def require(holds: Any, message: str, param: str | None, code: str | None = None, status: int = 400) -> None:
    if not holds:
        raise Refused(message, param, code, status)


def check_custom_tool(place: int, tool: dict[str, Any], *, takes_custom: bool) -> None:
    require(takes_custom, "`custom` tools are not supported on this endpoint", "tools")
    for name in tool.keys() - {"type", "name", "description", "format"}:
        where = f"tools[{place}].{name}"
        require(False, f"Unknown parameter: '{where}'.", where, "unknown_parameter")
    form = tool.get("format", {"type": "text"})
    wanted = {"type", "syntax", "definition"} if form["type"] == "grammar" else {"type"}
    for name in wanted ^ form.keys():
        where = f"tools[{place}].format.{name}"
        require(False, f"Missing required parameter: '{where}'.", where, "missing_required_parameter")


def check_message(place: int, item: dict[str, Any]) -> None:
    known = {"type", "role", "content", "phase"}
    for name in item.keys() - known:
        require(False, f"Unknown parameter: 'input[{place}].{name}'.", f"input[{place}].{name}", "unknown_parameter")
    if isinstance(item["content"], str):
        return
    for at, part in enumerate(item["content"]):
        where = f"input[{place}].content[{at}]"
        wanted = "output_text" if item["role"] == "assistant" else "input_text"
        message = f"Invalid value: '{part['type']}'. Supported values are: '{wanted}'."
        require(part["type"] == wanted, message, where, "invalid_value")


def check_call_id(place: int, item: dict[str, Any]) -> None:
    length = len(item["call_id"])
    require(
        length <= LONGEST_CALL_ID,
        f"Invalid 'input[{place}].call_id': string too long. Expected a string with maximum length 64, but got a string"
        f" with length {length} instead.",
        f"input[{place}].call_id",
        "string_above_max_length",
    )
