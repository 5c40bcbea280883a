"""Credentials that expire, as the routes file describes them, and how requests are authenticated with them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from services.chassis.http_client.origin import Origin

# The headers of a response, with names in lower case.
Headers = Sequence[tuple[bytes, bytes]]


class CredentialsUnavailable(Exception):
    """There are no valid credentials, for a reason in our own words: nothing secret, and nothing that a server sent."""


class Authentication(ABC):
    """Authenticates the requests to one server."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """Counts renewals: the same number means the same credentials."""

    @property
    @abstractmethod
    def failure(self) -> str:
        """The reason why the last renewal has failed; empty if it has not."""

    @abstractmethod
    async def ready(self) -> None:
        """Returns once there are valid credentials. Raises CredentialsUnavailable."""

    @abstractmethod
    def headers(self, path: str, body: bytes) -> Mapping[str, str]:
        """Returns the headers that authenticate a request, to be sent at once."""

    @abstractmethod
    async def renew(self, generation: int, status: int, headers: Headers) -> bool:
        """Renews credentials of this generation that the server has just refused; returns whether to ask it again."""

    @abstractmethod
    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Credentials(ABC):
    """Credentials by the routes file. Files that it names are read whenever credentials are obtained."""

    # As the routes file names it.
    source: ClassVar[str]

    @property
    @abstractmethod
    def identity(self) -> str:
        """Names whose credentials they are, the same on each router and after each renewal. It is not secret."""

    @abstractmethod
    def open(self, origin: Origin) -> Authentication:
        """Returns what authenticates requests to this server."""

    @abstractmethod
    def check(self) -> None:
        """Reads the files that are named, without asking any server. Raises CredentialsUnavailable."""

    def __str__(self) -> str:
        return f"{self.source} {self.identity}"
