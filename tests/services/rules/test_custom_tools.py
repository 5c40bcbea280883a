"""What an edge tells routers of custom tools."""

import msgspec

from services.rules.custom_tools import CustomForm, to_arguments


def test_text_is_the_one_argument() -> None:
    assert msgspec.json.decode(to_arguments('a "b"\n')) == {"input": 'a "b"\n'}


def test_form_is_as_short_as_what_the_client_described() -> None:
    assert msgspec.json.encode(CustomForm()) == b"{}"
    assert msgspec.json.encode(CustomForm("D", "regex", "a+")) == (
        b'{"description":"D","syntax":"regex","definition":"a+"}'
    )
