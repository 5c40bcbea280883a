"""Why a request has no response. The texts are our own words: nothing of what the server sent."""


class Interrupted(Exception):
    """No whole response has come: the connection broke, or as a subclass says."""

    def __init__(self, what: str = "broke the connection") -> None:
        super().__init__(what)


class Unreachable(Interrupted):
    """There is no connection to the server."""

    def __init__(self) -> None:
        super().__init__("could not be reached")


class ConnectionRefused(Unreachable):
    """The address refuses connections: the server is down, or its accept queue is full."""


class HostUnknown(Unreachable):
    """The name of the host has no address."""


class TlsFailed(Unreachable):
    """TLS could not be agreed on, or the certificate is not that of the host."""


class TimedOut(Interrupted):
    def __init__(self) -> None:
        super().__init__("did not answer in time")


class InvalidResponse(Interrupted):
    """The response is not HTTP, or exceeds a limit."""
