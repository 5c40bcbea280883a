"""Telling a database that is away from an operation that cannot be."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from services.chassis.errors import unavailable


def is_outage(error: BaseException) -> bool:
    """Whether it was the database's fault, and trying other operations would only fail again."""
    return isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.TimeoutError)


@contextmanager
def outage_is_unavailable() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if is_outage(error):
            raise unavailable("Metering") from error
        raise
