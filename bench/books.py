"""Compares an account's charges with what its answers said they used: to the last nano, or no figure counts."""

from pathlib import Path
from typing import Final

from bench.chats import Outcome
from services.metering.prices import read_prices
from services.metering.records import Usage
from tests.support.service import Service

PRICES: Final = Path(__file__).parents[1] / "prices.toml"
CLASS: Final = "forte"
CREDITS: Final = "1000000"


class BooksWrong(Exception):
    """A chat was lost or charged twice."""


class Books:
    """An account's books from its first chat."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.account_id = service.new_account(CREDITS)
        self._granted_nanos = service.settled_balance_nanos(self.account_id)
        self._used = Usage()
        self.api_key = service.new_key(self.account_id)

    def add(self, outcome: Outcome) -> None:
        self.add_usage(outcome.prompt_tokens, outcome.completion_tokens)

    def add_usage(self, prompt_tokens: int, completion_tokens: int) -> None:
        self._used = Usage(
            prompt_tokens=self._used.prompt_tokens + prompt_tokens,
            completion_tokens=self._used.completion_tokens + completion_tokens,
        )

    def check(self) -> None:
        self.check_charges()
        if violations := self._service.audit():
            raise BooksWrong(f"The audit objects: {violations}")

    def check_charges(self) -> None:
        # A token of this class costs whole nanos, so what all chats cost is what all their tokens cost.
        price_nanos = read_prices(PRICES)[CLASS].cost_nanos(self._used)
        charged_nanos = self._granted_nanos - self._service.settled_balance_nanos(self.account_id)
        if charged_nanos != price_nanos:
            raise BooksWrong(f"The answers were worth {price_nanos} nanos, and {charged_nanos} were charged.")
