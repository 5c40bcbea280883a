"""What an account has been charged, against what its answers said they used: to the last nano, or no figure counts."""

from pathlib import Path
from typing import Final

from bench.chats import Outcome
from services.metering.prices import read_prices
from services.metering.records import Usage
from tests.service import Service

PRICES: Final = Path(__file__).parents[1] / "prices.toml"
CLASS: Final = "forte"
CREDITS: Final = "1000000"


class BooksWrong(Exception):
    """A chat was lost or charged twice."""


class Books:
    """Of one account, from its first chat on."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._account_id = service.new_account(CREDITS)
        self._granted_nanos = service.settled_balance_nanos(self._account_id)
        self._used = Usage()
        self.api_key = service.new_key(self._account_id)

    def add(self, outcome: Outcome) -> None:
        self._used = Usage(
            prompt_tokens=self._used.prompt_tokens + outcome.prompt_tokens,
            completion_tokens=self._used.completion_tokens + outcome.completion_tokens,
        )

    def check(self) -> None:
        # A token of this class costs whole nanos, so what all chats cost is what all their tokens cost.
        price_nanos = read_prices(PRICES)[CLASS].cost_nanos(self._used)
        charged_nanos = self._granted_nanos - self._service.settled_balance_nanos(self._account_id)
        violations = self._service.audit()
        if charged_nanos != price_nanos or violations:
            raise BooksWrong(
                f"The answers were worth {price_nanos} nanos, and {charged_nanos} were charged; audit: {violations}"
            )
