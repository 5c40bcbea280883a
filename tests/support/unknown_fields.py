"""Finds what a client's published types do not have in an answer that they have read."""

from collections.abc import Iterator

from pydantic import BaseModel


def unknown_fields(part: object) -> Iterator[str]:
    """Yields TYPE.FIELD of each, however deep it is."""
    if isinstance(part, BaseModel):
        yield from (f"{type(part).__name__}.{name}" for name in part.model_extra or ())
        for name in type(part).model_fields:
            yield from unknown_fields(getattr(part, name))
    elif isinstance(part, list):
        for each in part:
            yield from unknown_fields(each)
