"""A document's kind, by its content, and the text in it."""

import pytest

from services.router.grounding.files.reader import DocumentRefused, kind_of, pages_of
from services.router.grounding.records import DocumentKind
from tests.support.pdfs import make_pdf, make_pdf_in_utf16

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
ZIP = b"PK\x03\x04\x14\x00\x00\x00\x08\x00" + bytes(range(128, 256))


def texts(document: bytes, pages_most: int = 100) -> list[str]:
    return list(pages_of(document, kind_of(document), pages_most)[1])


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (b"Just words.", DocumentKind.TEXT),
        ("# Überschrift\n\n* Punkt".encode(), DocumentKind.TEXT),
        (b"\xef\xbb\xbfWith a mark before it.", DocumentKind.TEXT),
        (b"a < b and <b> c", DocumentKind.TEXT),
        (b" \n<!-- x -->\n<!DOCTYPE html><p>Hi", DocumentKind.HTML),
        (b"<html><body>Hi</body></html>", DocumentKind.HTML),
        (
            b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0//EN" ""><p>Hi',
            DocumentKind.HTML,
        ),
        (b"<!-- - -- a comment -->\n" * 100 + b"<html>Hi", DocumentKind.HTML),
        (b"<!-- - -- a comment -->\n" * 100 + b"# A heading", DocumentKind.TEXT),
        (make_pdf(["Hi"]), DocumentKind.PDF),
        (b"\n\n" + make_pdf(["Hi"]), DocumentKind.PDF),
    ],
)
def test_kind_is_found_by_content(document: bytes, kind: DocumentKind) -> None:
    assert kind_of(document) is kind


@pytest.mark.parametrize("document", [PNG, ZIP, b"a\x00b", b"\xff\xfea\x00", b"{\\rtf1 words}", b"caf\xe9 in Latin-1"])
def test_what_is_neither_text_nor_html_nor_pdf_is_refused(document: bytes) -> None:
    with pytest.raises(DocumentRefused):
        texts(document)


def test_markdown_is_read_as_it_is() -> None:
    assert texts(b"# Title\n\n*one*\n") == ["# Title\n\n*one*\n"]


def test_html_gives_what_a_reader_sees() -> None:
    html = b"""<!doctype html><html><head><title>The   pump</title><style>p { color: red }</style>
        <script>steal("<p>not this</p>")</script></head>
        <body><h1>Oil &amp; filter</h1><p>Take <b>3.5</b> litres.<br>No more.</p>
        <svg><text>nor this</text></svg><template><p>nor that</p></template><!-- and not this --></body></html>"""
    [text] = texts(html)
    assert text == "The pump\nOil & filter\nTake 3.5 litres.\nNo more."


def test_html_that_never_closes_its_tags_is_read_all_the_same() -> None:
    assert texts(b"<html><p>One<p>Two<div>Three" + b"<div>" * 10_000) == ["One\nTwo\nThree"]


def test_pdf_is_read_page_by_page() -> None:
    pages = texts(make_pdf(["The first page.\nIts second line.", "The second (page)."]))
    assert [page.split("\n") for page in pages] == [["The first page.", "Its second line."], ["The second (page)."]]


def test_halves_of_characters_in_a_pdf_are_put_together_and_lone_ones_replaced() -> None:
    assert texts(make_pdf_in_utf16("A smile", "\ud83d\ude00")) == ["\N{GRINNING FACE} smile"]
    assert texts(make_pdf_in_utf16("A half", "\ud83d")) == ["\N{REPLACEMENT CHARACTER} half"]


def test_pdf_with_too_many_pages_is_refused() -> None:
    with pytest.raises(DocumentRefused, match="has 4 pages; the limit is 3"):
        texts(make_pdf(["x"] * 4), pages_most=3)


def test_pdf_that_is_cut_off_or_garbage_is_refused() -> None:
    for broken in (b"%PDF-1.4\n" + bytes(range(256)), b"%PDF-1.4\n%%EOF"):
        with pytest.raises(DocumentRefused, match="damaged"):
            texts(broken)
