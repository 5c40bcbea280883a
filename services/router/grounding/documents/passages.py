"""Splits a document into the passages that are searched and shown to a model."""

import re
from collections.abc import Iterator
from typing import Final

from services.router.grounding.records import Document

LONGEST_CHARACTERS: Final = 1200

_PARAGRAPHS: Final = re.compile(r"\n\s*\n")
_SENTENCES: Final = re.compile("(?<=[.!?\u3002\uff01\uff1f])\\s+|\n")
_SPACES: Final = re.compile(r"[ \t\f\v\u00a0]+")


def passages_of(document: Document) -> Iterator[tuple[int, str]]:
    """Yields each passage with its page, which is 0 if the document has no pages."""
    has_pages = len(document.pages) > 1
    for number, page in enumerate(document.pages, start=1):
        for text in split_into_passages(page):
            yield (number if has_pages else 0), text


def split_into_passages(page: str) -> Iterator[str]:
    """Yields passages; keeps paragraphs whole unless they are too long, then sentences, then words."""
    gathered = ""
    for part in _parts(_SPACES.sub(" ", page.replace("\r\n", "\n"))):
        if gathered and len(gathered) + len(part) + 1 > LONGEST_CHARACTERS:
            yield gathered
            gathered = ""
        gathered = f"{gathered}\n{part}" if gathered else part
    if gathered:
        yield gathered


def _parts(text: str) -> Iterator[str]:
    for paragraph in _PARAGRAPHS.split(text):
        stripped = paragraph.strip()
        if len(stripped) <= LONGEST_CHARACTERS:
            if stripped:
                yield stripped
            continue
        for sentence in _SENTENCES.split(stripped):
            yield from _cut(sentence.strip())


def _cut(sentence: str) -> Iterator[str]:
    """Splits at word boundaries by index: repeated slicing would copy a long text thousands of times."""
    begin, end = 0, len(sentence)
    while end - begin > LONGEST_CHARACTERS:
        at = sentence.rfind(" ", begin, begin + LONGEST_CHARACTERS)
        at = begin + LONGEST_CHARACTERS if at <= begin else at
        yield sentence[begin:at]
        begin = at
        while begin < end and sentence[begin].isspace():
            begin += 1
    if begin < end:
        yield sentence[begin:]
