"""Marks of functions that stand for custom tools."""

import msgspec
import pytest

from services.chassis.errors import LegatoError
from services.router.schema.custom_tools import take_marks
from services.router.schema.tools import Tools
from services.rules.custom_tools import MARK, CustomForm

WEATHER = b'{"type": "function", "function": {"name":"weather"}}'
MARKED = b'{"type":"function","function":{"name":"patch","parameters":{},"%b":{"description":"P."}}}' % MARK.encode()


def test_tools_without_marks_keep_their_bytes() -> None:
    tools_json = b"[ %b ]" % WEATHER
    assert take_marks(tools_json) == (tools_json, {})


def test_marks_are_taken_off_and_other_tools_keep_their_bytes() -> None:
    kept, forms = take_marks(b"[%b,%b]" % (WEATHER, MARKED))
    assert kept.startswith(b"[%b," % WEATHER)
    assert msgspec.json.decode(kept)[1] == {"type": "function", "function": {"name": "patch", "parameters": {}}}
    assert forms == {"patch": CustomForm("P.")}


def test_word_in_a_description_is_no_mark() -> None:
    tools_json = b'[{"type":"function","function":{"name":"a","description":"%b"}}]' % MARK.encode()
    assert take_marks(tools_json) == (tools_json, {})


def test_mark_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(LegatoError):
        take_marks(b'[{"type":"function","function":{"name":"a","%b":5}}]' % MARK.encode())


def test_some_of_the_tools_keep_their_forms_and_functions_have_none() -> None:
    choice = b'{"type":"allowed_tools","allowed_tools":{"tools":[{"function":{"name":"patch"}}]}}'
    tools = Tools.read(b"[%b,%b]" % (WEATHER, MARKED), choice)
    some = tools.without_others()
    assert ([tool["function"]["name"] for tool in msgspec.json.decode(some.json)], [*some.custom]) == (
        ["patch"],
        ["patch"],
    )
    assert (some.as_functions().json, some.as_functions().custom) == (some.json, {})
