import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FileDescriptor

import legato_protos
from docs.rpc_reference import CHAT_PAGE, INTERNAL_PAGE, MARK, chat_page, references

ROOT = Path(__file__).parents[2]


def file_descriptors() -> Iterator[FileDescriptor]:
    for path in sorted(Path(legato_protos.__path__[0]).rglob("*_pb2.py")):
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        yield module.DESCRIPTOR


def messages_in(file: FileDescriptor) -> Iterator[Descriptor]:
    waiting = list(file.message_types_by_name.values())
    while waiting:
        message = waiting.pop()
        if not message.GetOptions().map_entry:
            yield message
            waiting.extend(message.nested_types)


def page_of(file: FileDescriptor) -> str:
    return CHAT_PAGE if file.package == "legato.chat.v1" else INTERNAL_PAGE


def sections(page: str) -> dict[str, str]:
    """The text of each service, message and enum, by its full name."""
    _, *parts = re.split(r'^<a id="(\S+)"></a>\n\n### \S+$', references()[page], flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_method_field_and_value_is_there() -> None:
    shown = {page: sections(page) for page in (CHAT_PAGE, INTERNAL_PAGE)}
    files = list(file_descriptors())
    assert files
    for file in files:
        assert_all_is_shown(file, shown[page_of(file)])


def assert_all_is_shown(file: FileDescriptor, shown: dict[str, str]) -> None:
    for service in file.services_by_name.values():
        for method in service.methods:
            assert f"**{method.name}**" in shown[service.full_name]
    for message in messages_in(file):
        for field in message.fields:
            assert f"| `{field.name}` |" in shown[message.full_name], field.full_name
        for enum in message.enum_types:
            assert enum.full_name in shown
    for enum in file.enum_types_by_name.values():
        for value in enum.values:
            assert f"| `{value.name}` | {value.number} |" in shown[enum.full_name]


def test_links_lead_to_what_is_there() -> None:
    headings = {page: set(sections(page)) for page in (CHAT_PAGE, INTERNAL_PAGE)}
    for text in references().values():
        links = re.findall(r"\]\(([^)#]+)#([^)]+)\)", text)
        assert len(links) > 40
        assert [(page, name) for page, name in links if name not in headings[page]] == []


def test_a_method_is_shown_with_its_comment_and_its_callers() -> None:
    shown = sections(CHAT_PAGE)["legato.chat.v1.ChatService"]
    [row] = [line for line in shown.splitlines() if "**Stream**" in line]
    assert "stream of [StreamResponse]" in row
    assert "| Answers piece by piece." in row
    accounts = sections(INTERNAL_PAGE)["legato.metering.v1.MeteringService"]
    [row] = [line for line in accounts.splitlines() if "**Reserve**" in line]
    assert "| edge |" in row


def test_fields_have_their_comments_types_and_choices() -> None:
    shown = sections(CHAT_PAGE)
    assert "| `max_tokens` | optional int64 | The most tokens of output." in shown["legato.chat.v1.Chat"]
    assert (
        "| `function_name` | string | One of `kind`. The function or custom tool" in shown["legato.chat.v1.ToolChoice"]
    )
    assert "| `logit_bias` | map of string to double |" in shown["legato.chat.v1.Sampling"]


def test_chat_service_has_its_reference_in_the_repository() -> None:
    committed = (ROOT / "docs" / CHAT_PAGE).read_text()
    assert references()[CHAT_PAGE] in committed, "make protos"
    assert committed == chat_page()


def test_page_of_the_others_has_a_place_for_theirs() -> None:
    assert (ROOT / "docs" / INTERNAL_PAGE).read_text().count(MARK) == 1
