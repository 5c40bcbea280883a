"""PDFs, written by hand: a catalogue, pages, one font, and what each page draws."""

import zlib
from collections.abc import Sequence


def make_pdf(pages: Sequence[str]) -> bytes:
    """Each line of a page stands on a line of its own."""
    return assemble_pdf([_drawing(page) for page in pages])


def make_pdf_in_utf16(page: str, halves: str) -> bytes:
    """One page, on which the letter A stands for these halves of characters."""
    mapped = f"1 beginbfchar <41> <{halves.encode('utf-16-be', 'surrogatepass').hex()}> endbfchar"
    codes = f"begincmap 1 begincodespacerange <00> <FF> endcodespacerange {mapped} endcmap"
    return assemble_pdf([_drawing(page)], to_unicode=codes.encode())


def make_pdf_bomb(unpacked_bytes: int) -> bytes:
    """One page whose drawing is small, and unpacks to this much."""
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(b" " * 1_000_000) for _ in range(unpacked_bytes // 1_000_000)) + packer.flush()
    return assemble_pdf([packed], "/Filter /FlateDecode ")


def _drawing(page: str) -> bytes:
    lines = [line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in page.split("\n")]
    shown = " T* ".join(f"({line}) Tj" for line in lines)
    return f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET".encode("latin-1")


def assemble_pdf(drawings: Sequence[bytes], filters: str = "", to_unicode: bytes = b"") -> bytes:
    """`drawings` are the content streams of the pages; `to_unicode` says what the font's letters mean."""
    count = len(drawings)
    meanings = f" /ToUnicode {4 + 2 * count} 0 R" if to_unicode else ""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
        f"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica{meanings} >>".encode(),
    ]
    for number, drawing in enumerate(drawings):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
            f" /Contents {5 + 2 * number} 0 R >>".encode()
        )
        objects.append(f"<< {filters}/Length {len(drawing)} >>\nstream\n".encode() + drawing + b"\nendstream")
    if to_unicode:
        objects.append(f"<< /Length {len(to_unicode)} >>\nstream\n".encode() + to_unicode + b"\nendstream")
    written, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(written))
        written += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(written)}\n%%EOF\n"
    return written + (end + trailer).encode()
