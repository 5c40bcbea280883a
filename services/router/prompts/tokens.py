"""Counts tokens with OpenAI's o200k tokenizer.

The count is an estimate for models with another tokenizer, good enough to fit a context window and to size a hold; the
charge is based on the provider's count if it reports one.
"""

import codecs
import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.machinery import PathFinder
from typing import cast

import msgspec
from msgspec import Raw

from services.chassis.timing.yielder import Yielder
from services.router.prompts.known_counts import LEAST_BYTES, known_counts
from services.router.prompts.word_counts import WordCounts
from services.router.schema.messages import ABSENT, NULL, Message

# A text is counted in slices of this length, since the tokenizer holds the interpreter's lock.
SLICE_CHARACTERS = 16 * 1024
# Counting this much blocks the event loop for less than a millisecond; without the compiled part for two or three.
TURN_CHARACTERS = 32 * 1024
# A text is digested in pieces of this size.
DIGEST_BYTES = 256 * 1024
# Digesting so many bytes takes as long as counting a character.
DIGESTED_BYTES_PER_CHARACTER = 8
# The fixed cost of a message or text, as a number of characters.
CHARACTERS_PER_TEXT = 32


@cache
def counter() -> Callable[[str], int]:
    """Returns the function that counts a short text."""
    return WordCounts(tokenizer(), os.urandom(16)).count


@cache
def tokenizer() -> Callable[[str], int]:
    """Returns the tokenizer's own count. Loads it, once, which takes some 70 MB: not every process that reads the
    routes counts tokens.

    Loads its extension module directly: its package would first load all its vocabularies into Python objects, which
    takes a second and as much memory again."""
    package = importlib.util.find_spec("bpe_openai")
    spec = package and PathFinder.find_spec("bpe_openai._bindings", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError("bpe-openai is not installed")
    bindings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bindings)
    encode_count: Callable[[str], int] = bindings.tokenizer_for_encoding("o200k_base").count
    return encode_count


def count(text: str) -> int:
    """Counts a text that is known to be short, such as a piece of an answer."""
    return counter()(text)


def slices_of(text: str) -> Iterable[str]:
    """Returns slices of the text; a cut may add a token to the count."""
    if len(text) <= SLICE_CHARACTERS:
        return (text,)
    return (text[start : start + SLICE_CHARACTERS] for start in range(0, len(text), SLICE_CHARACTERS))


def slices_of_json(given_json: bytes | Raw) -> Iterable[str]:
    """Returns slices of JSON as it is written, decoded one by one: as one text it could be four times as long."""
    given = memoryview(given_json)
    if len(given) <= SLICE_CHARACTERS:
        return (str(given, "utf-8", "replace"),)
    slices = (bytes(given[at : at + SLICE_CHARACTERS]) for at in range(0, len(given), SLICE_CHARACTERS))
    return codecs.iterdecode(slices, "utf-8", "replace")


def count_plain(messages: Iterable[Message]) -> int:
    """Counts messages that have only a role and a text, as most have, and are short together."""
    count_short = counter()
    return sum([count_short(_string.decode(cast(Raw, message.content))) for message in messages])


async def count_slices(slices: Iterable[str], yielder: Yielder | None = None) -> int:
    """Counts slices, however many there are, and lets other tasks run meanwhile."""
    count_short, found_tokens = counter(), 0
    yielder = yielder or Yielder(TURN_CHARACTERS)
    for piece in slices:
        if piece:
            found_tokens += count_short(piece)
        await yielder.spend(len(piece) + CHARACTERS_PER_TEXT)
    return found_tokens


async def count_request(messages: Iterable[Message], values_json: Iterable[bytes]) -> int:
    """Counts all texts of messages, and JSON as it is written. Long ones that were counted before are remembered."""
    yielder, found_tokens = Yielder(TURN_CHARACTERS), 0
    for value_json in values_json:
        found_tokens += await _count_value(value_json, slices_of_json, yielder)
    for message in messages:
        for value in _message_values(message):
            if isinstance(value, str):
                found_tokens += await count_slices(slices_of(value), yielder)
            else:
                slices = text_slices if memoryview(value)[0] == _QUOTE else slices_of_json
                found_tokens += await _count_value(value, slices, yielder)
        await yielder.spend(CHARACTERS_PER_TEXT)
    return found_tokens


async def _count_value(value: Raw | bytes, slices: Callable[[Raw | bytes], Iterable[str]], yielder: Yielder) -> int:
    view = memoryview(value)
    if len(view) < LEAST_BYTES:
        return await count_slices(slices(value), yielder)
    known = known_counts()
    digest = known.begin_digest()
    # The same bytes have another count as a text than as JSON.
    digest.update(b"text" if slices is text_slices else b"json")
    for begin in range(0, len(view), DIGEST_BYTES):
        piece = view[begin : begin + DIGEST_BYTES]
        digest.update(piece)
        await yielder.spend(len(piece) // DIGESTED_BYTES_PER_CHARACTER)
    name = digest.digest()
    found_tokens = known.find(name)
    if found_tokens is None:
        found_tokens = await count_slices(slices(value), yielder)
        known.remember(name, found_tokens)
    return found_tokens


def _message_values(message: Message) -> Iterator[str | Raw]:
    """Yields the texts of a message: strings as JSON, which are decoded only when they are counted, since a prompt may
    have megabytes; other values as their JSON."""
    if message.name:
        yield message.name
    if message.tool_call_id:
        yield message.tool_call_id
    content = message.content
    if isinstance(content, list):
        for part in content:
            # Reading a part has a cost, even if there is nothing in it.
            yield from ("",) if part.text is ABSENT else (part.text,)
            yield from _present(part.cache_control)
    elif content != NULL:
        yield from _present(content)
    yield from _present(message.refusal, message.prefix, message.partial, *message.reasonings)
    for call in message.calls:
        yield call.id or ""
        if call.function is not None:
            yield call.function.name or ""
            yield from _present(call.function.arguments)
        yield from _present(call.extra_content)


def _present(*values: Raw) -> list[Raw]:
    return [value for value in values if value is not ABSENT]


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


def text_slices(string_json: Raw | bytes) -> Iterable[str]:
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
