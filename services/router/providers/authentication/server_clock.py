"""The time as a vendor's server has it, which what is signed must be close to."""

import time
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from services.router.providers.authentication.credentials import Headers

# A date header has whole seconds and is some time old; servers accept signatures that are minutes off.
_UNNOTICED_S: Final = 30.0


class ServerClock:
    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._ahead_s = 0.0

    def now_s(self) -> float:
        """Returns the server's seconds since 1970."""
        return self._now() + self._ahead_s

    def learn(self, headers: Headers) -> bool:
        """Takes over the time in the headers of a response; returns whether another was assumed."""
        date = dict(headers).get(b"date", b"").decode("latin-1")
        try:
            moment = parsedate_to_datetime(date)
            ahead_s = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - self._now()
        except (ValueError, OverflowError):
            return False
        if abs(ahead_s - self._ahead_s) <= _UNNOTICED_S:
            return False
        self._ahead_s = ahead_s
        return True
