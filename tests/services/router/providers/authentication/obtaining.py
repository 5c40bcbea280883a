"""Played credentials, for the tests of what renews and uses them."""

from collections import deque

from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.renewal import Expiring


class PlayedTime:
    """Seconds that only pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class PlayedSource:
    """Hands out a new token each time, unless it is to fail."""

    def __init__(self, lifetime_s: float = 3600.0) -> None:
        self.lifetime_s = lifetime_s
        self.obtained = 0
        # Each fails one renewal.
        self.failures: deque[str] = deque()

    async def obtain(self) -> Expiring[str]:
        self.obtained += 1
        if self.failures:
            raise CredentialsUnavailable(self.failures.popleft())
        return Expiring(f"token-{self.obtained}", self.lifetime_s)
