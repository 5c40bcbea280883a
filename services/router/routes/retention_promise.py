"""A provider's promise to retain no data, as the routes file states it: what it rests on, and until when it holds."""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

from services.chassis.http_client.own_hosts import is_own_host
from services.chassis.telemetry.log import Log
from services.router.providers.base import ProviderRoute
from services.router.routes import file as kinds
from services.router.routes.file import Table

# Time to renew an agreement.
WARNING_DAYS: Final = 30


class Lapse(NamedTuple):
    """A promise that lapses soon, or has lapsed."""

    provider: str
    until: date
    # Negative after that date.
    days_left: int

    def __str__(self) -> str:
        when = f"in {self.days_left} days" if self.days_left >= 0 else f"{-self.days_left} days ago"
        return f"zero retention is promised until {self.until}, which is {when}"


def utc_today() -> date:
    return datetime.now(UTC).date()


def read_promise(table: Table, host: str, today: date) -> tuple[str, date | None]:
    """Returns the evidence of the promise and its date, which every server needs that is not the operator's own."""
    for key, what in (
        ("evidence", "a reference to the agreement with the provider, such as the number of a contract or a URL"),
        ("until", "the date until which the provider has agreed to retain no data, such as 2027-06-30"),
    ):
        if host and not is_own_host(host) and not table.has(key):
            table.mistake(key, f"is missing: {what}")
    evidence, until = table.read("evidence", kinds.TEXT, ""), table.read("until", kinds.DATE, None)
    if until is not None and until < today:
        table.mistake("until", f"zero retention was promised until {until}: renew the agreement with the provider")
    return evidence, until


def find_lapses(providers: Mapping[str, ProviderRoute], today: date) -> Iterator[Lapse]:
    for name, route in sorted(providers.items()):
        if route.until is not None and (days_left := (route.until - today).days) <= WARNING_DAYS:
            yield Lapse(name, route.until, days_left)


def warn_of_lapses(providers: Mapping[str, ProviderRoute], today: date, log: Log) -> None:
    for lapse in find_lapses(providers, today):
        log.warning("provider.promise_lapses", provider=lapse.provider, reason=str(lapse))


def lapses_at_s(until: date) -> float:
    """Returns when a promise until this date lapses, in seconds since 1970: it holds for the whole day, in UTC."""
    return datetime.combine(until + timedelta(days=1), time(), UTC).timestamp()
