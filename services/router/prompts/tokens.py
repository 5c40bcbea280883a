"""Counts tokens with OpenAI's o200k tokenizer.

The count is an estimate for models with another tokenizer, good enough to fit a context window and to size a hold; the
charge is based on the provider's count if it reports one.
"""

import codecs
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.machinery import PathFinder
from typing import cast

import msgspec

from services.chassis.timing.yielder import Yielder
from services.router.schema.messages import ABSENT, NULL, Message

# Counting a slice blocks the event loop for about a millisecond.
SLICE_CHARACTERS = 16 * 1024
# The fixed cost of a message or text, as a number of characters.
CHARACTERS_PER_TEXT = 32


@cache
def counter() -> Callable[[str], int]:
    """Returns the function that counts a short text. Loads the tokenizer, once, which takes some 70 MB: not every
    process that reads the routes counts tokens.

    Loads its extension module directly: its package would first load all its vocabularies into Python objects, which
    takes a second and as much memory again."""
    package = importlib.util.find_spec("bpe_openai")
    spec = package and PathFinder.find_spec("bpe_openai._bindings", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError("bpe-openai is not installed")
    bindings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bindings)
    count_short: Callable[[str], int] = bindings.tokenizer_for_encoding("o200k_base").count
    return count_short


def count(text: str) -> int:
    """Counts a text that is known to be short, such as a piece of an answer."""
    return counter()(text)


def slices_of(text: str) -> Iterable[str]:
    """Returns slices of the text; a cut may add a token to the count."""
    if len(text) <= SLICE_CHARACTERS:
        return (text,)
    return (text[start : start + SLICE_CHARACTERS] for start in range(0, len(text), SLICE_CHARACTERS))


def slices_of_json(given_json: bytes | msgspec.Raw) -> Iterable[str]:
    """Returns slices of JSON as it is written, decoded one by one: as one text it could be four times as long."""
    given = memoryview(given_json)
    if len(given) <= SLICE_CHARACTERS:
        return (str(given, "utf-8", "replace"),)
    slices = (bytes(given[at : at + SLICE_CHARACTERS]) for at in range(0, len(given), SLICE_CHARACTERS))
    return codecs.iterdecode(slices, "utf-8", "replace")


def count_plain(messages: Iterable[Message]) -> int:
    """Counts messages that have only a role and a text, as most have, and are short together."""
    count_short = counter()
    return sum([count_short(_string.decode(cast(msgspec.Raw, message.content))) for message in messages])


async def count_slices(slices: Iterable[str]) -> int:
    """Counts slices, however many there are, and lets other tasks run meanwhile."""
    count_short, yielder, found_tokens = counter(), Yielder(SLICE_CHARACTERS), 0
    for piece in slices:
        if piece:
            found_tokens += count_short(piece)
        await yielder.spend(len(piece) + CHARACTERS_PER_TEXT)
    return found_tokens


def request_slices(messages: Iterable[Message], values_json: Iterable[bytes]) -> Iterator[str]:
    """Yields all texts of messages, and JSON as it is written, in slices."""
    for value_json in values_json:
        yield from slices_of_json(value_json)
    for message in messages:
        yield from _message_texts(message)


def _message_texts(message: Message) -> Iterator[str]:
    """Yields the texts of a message in slices. Strings are decoded only here, since a prompt may have megabytes."""
    # Yielded even if empty, as for a part: reading it has a cost.
    yield from slices_of(message.name or "")
    if message.tool_call_id:
        yield from slices_of(message.tool_call_id)
    content = message.content
    if isinstance(content, list):
        for part in content:
            yield from ("",) if part.text is ABSENT else _value_slices(part.text)
            yield from _value_slices(part.cache_control)
    elif content != NULL:
        yield from _value_slices(content)
    for given in (message.refusal, message.prefix, message.partial, *message.reasonings):
        if given is not ABSENT:
            yield from _value_slices(given)
    for call in message.calls:
        yield from slices_of(call.id or "")
        if call.function is not None:
            yield from slices_of(call.function.name or "")
            yield from _value_slices(call.function.arguments)
        yield from _value_slices(call.extra_content)


def _value_slices(value: msgspec.Raw) -> Iterable[str]:
    """Returns a string's text, or any other value's JSON, in slices."""
    if value is ABSENT:
        return ()
    return text_slices(value) if memoryview(value)[0] == _QUOTE else slices_of_json(value)


@cache
def count_once(text: str) -> int:
    """Counts and caches one of the few texts that are in every prompt."""
    return count(text)


SLICE_BYTES = 16 * 1024

_QUOTE = ord('"')
_string = msgspec.json.Decoder(str)
# Matches up to a position where a string may be split: neither inside a UTF-8 sequence nor between the escapes of a
# surrogate pair. Never longer than a slice.
_WHOLE_CHARACTERS = re.compile(
    rb"(?:[^\"\\\x80-\xff]{1,256}+|[\xc0-\xff][\x80-\xbf]*+|\\u[dD][89abAB]..\\u....|\\u....|\\[^u]){1,64}+", re.DOTALL
)


def text_slices(string_json: msgspec.Raw) -> Iterable[str]:
    """Returns the decoded slices of a string that is valid JSON, quotes included."""
    given = memoryview(string_json)
    return (_string.decode(given),) if len(given) <= SLICE_BYTES else _long_text_slices(given)


def _long_text_slices(given: memoryview) -> Iterator[str]:
    begin = at = 1
    end = len(given) - 1
    while at < end:
        stretch = _WHOLE_CHARACTERS.match(given, at, end)
        if stretch is None:
            raise msgspec.DecodeError("not a JSON string")
        at = stretch.end()
        if at - begin >= SLICE_BYTES or at == end:
            yield _string.decode(b'"' + given[begin:at] + b'"')
            begin = at
