"""Takes an advisory lock of PostgreSQL in turn with other processes that migrate the same schema."""

import time
from collections.abc import Callable
from typing import Final

import sqlalchemy as sa

PAUSE_S: Final = 0.1
# Is told what a migration waits for.
OnWait = Callable[[str], None]


def take_lock(connection: sa.Connection, function: str, name: str, on_wait: OnWait) -> None:
    """Takes the lock `name` by `function`, which returns whether it could.

    It asks again and again: an index that another session builds concurrently waits for every statement that runs, and
    so for one that waits for a lock which that session has."""
    attempt = sa.text(f"SELECT {function}(hashtext(:name))").bindparams(name=name)
    if connection.scalar(attempt):
        return
    on_wait("another process migrates it")
    while not connection.scalar(attempt):
        time.sleep(PAUSE_S)
