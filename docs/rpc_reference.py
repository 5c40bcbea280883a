"""Writes the reference of the gRPC services from the comments of the .proto files.

Programs need the chat service, which has a page of its own: `make protos` writes it. The services that Legato's
processes and its command line call are on another, which has its content only on the site: this is a hook of
`make docs`.
"""

import functools
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

from legato_protos.type.v1.access_token_pb2 import AccountRole
from legato_protos.type.v1.method_access_pb2 import (
    CALLER_ADMIN,
    CALLER_CONSOLE,
    CALLER_EDGE,
    CALLER_OPERATOR_CONSOLE,
    Caller,
    TokenRule,
    access,
)

DOCS = Path(__file__).parent
PROTOS = DOCS.parent / "protos"
CHAT_PACKAGE = "legato.chat.v1"
CHAT_PAGE = "rpc-reference.md"
INTERNAL_PAGE = "rpc-internal.md"
# On a page, stands for its part of the reference.
MARK = "<rpc-reference/>"
# On a page, all that follows is its part of the reference.
WRITTEN = "<!-- make protos writes what follows. -->"
# The first whose callers may call a service is the one that it is for.
AUDIENCES = {
    "For the edge": {CALLER_EDGE},
    "For the command line and the consoles": {CALLER_ADMIN, CALLER_CONSOLE, CALLER_OPERATOR_CONSOLE},
    "For other processes": set(Caller.values()),
}
# Numbers of fields in the descriptors, of which the paths of comments are made.
_MESSAGES, _ENUMS, _SERVICES = (
    FileDescriptorProto.DESCRIPTOR.fields_by_name[name].number for name in ("message_type", "enum_type", "service")
)
_METHODS = ServiceDescriptorProto.DESCRIPTOR.fields_by_name["method"].number
_FIELDS, _NESTED_MESSAGES, _NESTED_ENUMS = (
    DescriptorProto.DESCRIPTOR.fields_by_name[name].number for name in ("field", "nested_type", "enum_type")
)
_ONEOFS = DescriptorProto.DESCRIPTOR.fields_by_name["oneof_decl"].number
_VALUES = EnumDescriptorProto.DESCRIPTOR.fields_by_name["value"].number

Position = tuple[int, ...]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    return markdown.replace(MARK, references()[INTERNAL_PAGE]) if page.file.src_uri == INTERNAL_PAGE else markdown


def chat_page() -> str:
    """Returns the page of the chat service, with its present reference."""
    written_by_hand, mark, _ = (DOCS / CHAT_PAGE).read_text().partition(WRITTEN)
    return f"{written_by_hand}{mark}\n\n{references()[CHAT_PAGE]}\n"


@functools.cache
def references() -> Mapping[str, str]:
    """Returns what the reference has on each page, by the page's name."""
    documented = [_File(proto) for proto in _read_protos().file if proto.package.startswith("legato.")]
    chat = [file for file in documented if file.proto.package == CHAT_PACKAGE]
    internal = [file for file in documented if file not in chat]
    return {
        CHAT_PAGE: _joined([*_chat_methods(chat), *_messages(chat)]),
        INTERNAL_PAGE: _joined([*_internal_methods(internal), *_messages(internal)]),
    }


def _read_protos() -> FileDescriptorSet:
    with tempfile.NamedTemporaryFile() as result:
        options = ["--include_imports", "--include_source_info", f"--descriptor_set_out={result.name}"]
        include = [f"-I{PROTOS}", f"-I{package_files('grpc_tools') / '_proto'}"]
        if protoc.main(["protoc", *include, *options, *map(str, sorted(PROTOS.rglob("*.proto")))]):
            raise ValueError("protoc does not accept the .proto files")
        return FileDescriptorSet.FromString(Path(result.name).read_bytes())


class _File:
    """A .proto file, with its comments by their positions."""

    def __init__(self, proto: FileDescriptorProto) -> None:
        self.proto = proto
        self._comments = {
            tuple(place.path): f"{place.leading_comments}\n{place.trailing_comments}"
            for place in proto.source_code_info.location
        }

    def paragraphs(self, position: Position) -> str:
        """Returns the comment as it is divided into paragraphs."""
        linked = re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", self._comments.get(position, ""))
        texts = re.split(r"\n\s*\n", linked)
        return "\n\n".join(joined for text in texts if (joined := " ".join(text.split())))

    def line(self, position: Position) -> str:
        """Returns the comment for a cell of a table."""
        return self.paragraphs(position).replace("\n\n", " ").replace("|", r"\|")

    def services(self) -> Iterator["_Service"]:
        for index, service in enumerate(self.proto.service):
            yield _Service(self, service, (_SERVICES, index))


class _Service(NamedTuple):
    file: _File
    proto: ServiceDescriptorProto
    position: Position

    @property
    def audience(self) -> str:
        callers = {caller for method in self.proto.method for caller in method.options.Extensions[access].callers}
        return next(title for title, audience in AUDIENCES.items() if callers & audience)

    @property
    def full_name(self) -> str:
        return f"{self.file.proto.package}.{self.proto.name}"

    def methods(self) -> Iterator[tuple[MethodDescriptorProto, str]]:
        """Yields the methods with their comments."""
        for index, method in enumerate(self.proto.method):
            yield method, self.file.line((*self.position, _METHODS, index))


def _joined(blocks: Iterable[str]) -> str:
    return "\n\n".join(block for block in blocks if block)


def _chat_methods(files: Sequence[_File]) -> Iterator[str]:
    yield "## Methods"
    for file in files:
        for service in file.services():
            yield from _service_heading(service)
            rows = [(_method_cell(service, method), words) for method, words in service.methods()]
            yield _table(("Method", "Description"), rows)


def _internal_methods(files: Sequence[_File]) -> Iterator[str]:
    services = [service for file in files for service in file.services()]
    for title in AUDIENCES:
        its_services = [service for service in services if service.audience == title]
        if its_services:
            yield f"## {title}"
        for service in its_services:
            yield from _service_heading(service)
            rows = [
                (_method_cell(service, method), _who_may_call(method), words) for method, words in service.methods()
            ]
            yield _table(("Method", "Callers", "Description"), rows)


def _service_heading(service: _Service) -> Iterator[str]:
    yield _heading(service.file, service.full_name)
    yield f"`{service.full_name}`"
    yield service.file.paragraphs(service.position)


def _messages(files: Sequence[_File]) -> Iterator[str]:
    for package in dict.fromkeys(file.proto.package for file in files):
        yield f"## Messages of {package}"
        for file in files:
            if file.proto.package == package:
                yield from _type_blocks(file)


def _method_cell(service: _Service, method: MethodDescriptorProto) -> str:
    takes = _type_link(method.input_type, is_stream=method.client_streaming)
    returns = _type_link(method.output_type, is_stream=method.server_streaming)
    return f'<a id="{service.full_name}.{method.name}"></a>**{method.name}**<br>{takes}<br>→ {returns}'


def _type_blocks(file: _File) -> Iterator[str]:
    prefix = file.proto.package
    for index, message in enumerate(file.proto.message_type):
        yield from _message_blocks(file, message, prefix, (_MESSAGES, index))
    for index, enum in enumerate(file.proto.enum_type):
        yield from _enum_blocks(file, enum, prefix, (_ENUMS, index))


def _message_blocks(file: _File, message: DescriptorProto, prefix: str, position: Position) -> Iterator[str]:
    full_name = f"{prefix}.{message.name}"
    yield _heading(file, full_name)
    yield file.paragraphs(position)
    entries = {f".{full_name}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
    rows = [
        (
            f"`{field.name}`",
            _field_type(field, entries),
            _field_words(file, message, field, (*position, _FIELDS, index), position),
        )
        for index, field in enumerate(message.field)
    ]
    yield _table(("Field", "Type", "Description"), rows) if rows else "It has no fields."
    for index, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from _message_blocks(file, nested, full_name, (*position, _NESTED_MESSAGES, index))
    for index, enum in enumerate(message.enum_type):
        yield from _enum_blocks(file, enum, full_name, (*position, _NESTED_ENUMS, index))


def _enum_blocks(file: _File, enum: EnumDescriptorProto, prefix: str, position: Position) -> Iterator[str]:
    yield _heading(file, f"{prefix}.{enum.name}")
    yield file.paragraphs(position)
    rows = [
        (f"`{value.name}`", str(value.number), file.line((*position, _VALUES, index)))
        for index, value in enumerate(enum.value)
    ]
    yield _table(("Value", "Number", "Description"), rows)


def _heading(file: _File, full_name: str) -> str:
    return f'<a id="{full_name}"></a>\n\n### {full_name.removeprefix(f"{file.proto.package}.")}'


def _field_type(field: FieldDescriptorProto, entries: Mapping[str, DescriptorProto]) -> str:
    if field.type_name in entries:
        key, value = entries[field.type_name].field
        return f"map of {_value_type(key)} to {_value_type(value)}"
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {_value_type(field)}"
    return f"optional {_value_type(field)}" if field.proto3_optional else _value_type(field)


def _value_type(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return _type_link(field.type_name)
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _field_words(
    file: _File, message: DescriptorProto, field: FieldDescriptorProto, position: Position, of_message: Position
) -> str:
    words = file.line(position)
    if not field.HasField("oneof_index") or field.proto3_optional:
        return words
    choice = message.oneof_decl[field.oneof_index].name
    sentences = (f"One of `{choice}`.", file.line((*of_message, _ONEOFS, field.oneof_index)), words)
    return " ".join(filter(None, sentences))


def _type_link(type_name: str, *, is_stream: bool = False) -> str:
    name = type_name.removeprefix(".")
    stream = "stream of " if is_stream else ""
    if not name.startswith("legato."):
        return f"{stream}`{name}`"
    _, package, _, *parts = name.split(".")
    page = CHAT_PAGE if package == "chat" else INTERNAL_PAGE
    return f"{stream}[{'.'.join(parts)}]({page}#{name})"


def _who_may_call(method: MethodDescriptorProto) -> str:
    rule = method.options.Extensions[access]
    callers = [Caller.Name(caller).removeprefix("CALLER_").lower().replace("_", " ") for caller in rule.callers]
    words = ", ".join(callers) or "the owner, on a unix socket"
    return f"{words}; {_token_words(rule.token)}" if rule.HasField("token") else words


def _token_words(rule: TokenRule) -> str:
    role = AccountRole.Name(rule.role).removeprefix("ACCOUNT_ROLE_").lower() if rule.role else ""
    needs = [
        *(["operator"] if rule.operator else []),
        *([f"{role} or more, or operator" if rule.or_operator else f"{role} or more"] if role else []),
        *(["recent"] if rule.recent else []),
        *(["recent for operators"] if rule.operators_recent else []),
    ]
    return f"access token: {', '.join(needs) or 'any user'}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    (DOCS / CHAT_PAGE).write_text(chat_page())
