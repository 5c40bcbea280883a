"""Begins, changes and ends a canary in the text of a routes file, and leaves all other text as it is."""

import json
import re
import tomllib
from typing import Any, Final

from services.router.routing.route_lines import Mistake

_NOT_PLACED: Final = "is not written as a table of its own, [classes.CLASS], so its canary has to be edited in the text"


class CanaryNotPlaced(Exception):
    def __init__(self, class_id: str, line: int = 0) -> None:
        super().__init__(class_id)
        self.mistake = Mistake(line, f"classes.{class_id}", _NOT_PLACED)


def set_canary(text: str, class_id: str, model: str, percent: float) -> str:
    """Returns the text with this canary of a class, or with none if `percent` is 0. Raises CanaryNotPlaced, also for a
    text that is no TOML."""
    try:
        wanted = tomllib.loads(text)
        route: dict[str, Any] = wanted["classes"][class_id]
        before = dict(route.pop("canary", {}))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CanaryNotPlaced(class_id) from None
    lines = _without_canary(text.splitlines(keepends=True), class_id)
    if percent:
        accounts = {"accounts": before["accounts"]} if before.get("accounts") else {}
        route["canary"] = {"model": model, "percent": percent, **accounts}
        header = re.compile(rf"\s*\[\s*classes\s*\.\s*{re.escape(class_id)}\s*\]\s*(#.*)?")
        place = next((number for number, line in enumerate(lines) if header.fullmatch(line.rstrip())), None)
        if place is None:
            raise CanaryNotPlaced(class_id)
        lines.insert(_end_of_table(lines, place), f"canary = {_inline(route['canary'])}\n")
    edited = "".join(lines)
    try:
        # However the file is written: nothing else may have changed.
        is_right = tomllib.loads(edited) == wanted
    except ValueError:
        is_right = False
    if not is_right:
        raise CanaryNotPlaced(class_id)
    return edited


def _without_canary(lines: list[str], class_id: str) -> list[str]:
    """Leaves out `canary = …` in the table of the class, and the table of the canary."""
    table, kept = "", []
    own = f"classes.{class_id}"
    for line in lines:
        if re.match(r"\s*\[", line):
            table = re.sub(r"[\s\[\]]|#.*", "", line)
        if table == f"{own}.canary" or (table == own and re.match(r"\s*canary\s*=", line)):
            continue
        kept.append(line)
    return kept


def _end_of_table(lines: list[str], header: int) -> int:
    """Returns the number of the line behind the last key of a table, before the empty lines and the next header."""
    end = header + 1
    for number in range(header + 1, len(lines)):
        if re.match(r"\s*\[[^\[\]]+\]\s*(#.*)?$", lines[number]):
            break
        if lines[number].strip() and not lines[number].lstrip().startswith("#"):
            end = number + 1
    if not lines[end - 1].endswith("\n"):
        lines[end - 1] += "\n"
    return end


def _inline(values: dict[str, Any]) -> str:
    """Formats an inline table of texts, numbers and lists of texts, which JSON writes as TOML does."""
    pairs = (f"{name} = {_value(value)}" for name, value in values.items())
    return f"{{ {', '.join(pairs)} }}"


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
