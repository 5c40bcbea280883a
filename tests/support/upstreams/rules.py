"""Vendors' rules for requests, as the servers that play them keep them."""

from typing import Any


class RuleBroken(Exception):
    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def require(holds: Any, message: str, status: int = 400) -> None:
    if not holds:
        raise RuleBroken(message, status)
