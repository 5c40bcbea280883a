"""The services behind a console, as tests find them: real ones on files, with faults on demand."""

from pathlib import Path
from typing import Any

from services.chassis.errors import LegatoError, unavailable
from services.chassis.telemetry.log import Log
from tests.console import auth_rows
from tests.console.auth import Auth
from tests.console.auth_rows import OTHER_ACCOUNTS
from tests.console.long_names import lengthen
from tests.console.metering import DOLLAR, Metering
from tests.console.payments import Payments
from tests.console.processes import Processes
from tests.console.router import Router


class Backends:
    """All services. Tests change what they know; `calls` are the RPCs that arrived, by name."""

    def __init__(self, folder: Path, origin: str) -> None:
        """Opens the services on files of the folder, for a console with this origin."""
        self.auth = Auth(folder, origin, self.renew)
        self.metering = Metering(folder)
        self.payments = Payments(self.metering)
        self.router = Router(folder)
        self.grounding = self.router.grounding
        # Whatever people can name has the longest name, and one without a place to break it. Outlives `reset`.
        self.has_long_names = False
        self.reset()

    def reset(self) -> None:
        """Leaves an account that has some credit and has not been used."""
        self.auth.reset()
        self.metering.reset()
        self.payments.reset()
        self.router.reset()
        self.processes = Processes()
        self.calls: list[str] = []
        self.requests: list[Any] = []
        # What RPCs are refused with, by name.
        self.fail: dict[str, Exception] = {}
        # How many calls of these are answered before.
        self.answered_first: dict[str, int] = {}
        # Streams that ended, for whatever reason.
        self.ended_streams = 0
        self.renew()

    def renew(self) -> None:
        """Has the next call answered by servicers that have read nothing yet."""
        self.generation = object()

    async def start(self, folder: Path, log: Log) -> None:
        await self.payments.start(f"unix:{folder}/bookings.sock", log)
        await self.auth.start(f"unix:{folder}/spend-limits.sock", log)

    async def close(self) -> None:
        await self.payments.close()
        await self.router.close()
        await self.metering.close()
        await self.auth.close()

    def fill(self) -> None:
        """Gives the account a month of use, keys in every state, passkeys and a log."""
        self.auth.fill()
        self._fill_metering()

    def offer_everything(self) -> None:
        """Fills as `fill` does, offers all ways to sign in, and gives the user each of them."""
        self.auth.offer_everything()
        self._fill_metering()

    def _fill_metering(self) -> None:
        self.metering.fill([f"key_{number:016d}" for number in range(1, 5)])

    def fill_operator(self) -> None:
        """Gives the service a few accounts and users, and busy processes."""
        self.auth.fill_operator()
        for number in range(len(OTHER_ACCOUNTS)):
            self.metering.book(42 * DOLLAR * number + 187_654_321, "grant", f"acct_{number + 1:016d}")
        self.router.be_busy()
        self.processes.be_busy()

    def fill_notices(self) -> None:
        self.auth.fill_notices()
        self.metering.change("UPDATE accounts SET low_balance_nanos = :nanos", nanos=25 * DOLLAR)

    def add_many_keys(self, count: int) -> None:
        """Gives the account further keys, all of which were used on the same day."""
        last_used_us, first = auth_rows.used(hours=2), len(self.auth.list_keys()) + 1
        keys = [
            auth_rows.key(first + number, f"Service {number:04d}", last_used_hour_us=last_used_us)
            for number in range(count)
        ]
        self.auth.add_keys(*keys)
        self.metering.add_charges(each.key_id for each in keys)

    def note(self, name: str, request: Any) -> None:
        """Keeps a call, and fails it if it is to fail."""
        self.calls.append(name)
        self.requests.append(request)
        if name in self.fail and self.calls.count(name) > self.answered_first.get(name, 0):
            raise self.fail[name]

    @property
    def calls_of_page(self) -> list[str]:
        """Returns those beside the ones of every page: who the visitor is, and how much credit there is."""
        return [
            each for each in self.calls if each not in ("SignInService.ResolveSession", "MeteringService.GetBalance")
        ]

    def told(self, answer: Any) -> Any:
        if self.has_long_names:
            lengthen(answer)
        return answer


def not_answering() -> LegatoError:
    return unavailable("The service")
