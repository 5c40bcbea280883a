"""Documents that are read in a process of their own."""

import pytest

from services.chassis.errors import LegatoError, Reason
from services.router.grounding.extraction import Extraction
from services.router.grounding.records import DocumentKind
from tests.pdfs import make_pdf, make_pdf_bomb


async def refusal_of(document: bytes, **limits: float) -> LegatoError:
    with pytest.raises(LegatoError) as refusal:
        await Extraction(pages_most=10, **limits).read(document, lambda done, total: None)
    assert refusal.value.reason is Reason.REQUEST_INVALID
    return refusal.value


async def test_pages_are_read_in_their_order_and_told_as_they_come() -> None:
    told: list[tuple[int, int]] = []
    document = make_pdf(["One.", "", "Three."])
    read = await Extraction(pages_most=10).read(document, lambda done, total: told.append((done, total)))
    assert (read.kind, read.size_bytes, read.pages) == (DocumentKind.PDF, len(document), ["One.", "", "Three."])
    assert told == [(1, 3), (2, 3), (3, 3)]


async def test_long_text_arrives_whole() -> None:
    text = "Line after line, and none is lost. ü\n" * 20_000
    read = await Extraction(pages_most=10).read(text.encode(), lambda done, total: None)
    assert read.pages == [text]


async def test_document_that_unpacks_to_far_more_than_it_is_is_refused() -> None:
    bomb = make_pdf_bomb(unpacked_bytes=100_000_000)
    assert len(bomb) < 1_000_000
    assert (await refusal_of(bomb)).param == "document"


async def test_document_that_takes_too_long_is_given_up() -> None:
    assert "too long" in (await refusal_of(b"Read me.", within_s=0.01)).message


async def test_refusal_says_why_and_quotes_nothing() -> None:
    assert "neither text" in (await refusal_of(b"secretword\x00")).message
    assert "secretword" not in (await refusal_of(b"secretword\x00")).message
    assert "10" in (await refusal_of(make_pdf(["x"] * 11))).message
