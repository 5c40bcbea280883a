def scan_deltas(received: bytes, /) -> tuple[str, bytes, int] | None:
    """Returns the joined text of a read, its texts as JSON strings, and the bytes of its body; None to decline."""
