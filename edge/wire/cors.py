"""CORS: lets pages of other origins call the service from a browser.

Keys are sent in a header that the page sets itself and never in a cookie, so no page can act with a visitor's
credentials: every origin is allowed, unless the settings list some.
"""

import re

from edge.wire.asgi import Headers, HttpScope
from services.chassis.settings import SettingsError

ANY_ORIGIN = "*"
# The form that browsers send: lower case, no path and no trailing slash.
ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#A-Z]+")
# How long a browser may cache a preflight response.
REMEMBERED_S = 86_400

# The response headers that a page may read.
EXPOSED = (
    b"x-request-id, retry-after, retry-after-ms, x-should-retry, x-original-request-id,"
    b" x-legato-max-tokens, x-legato-attempt,"
    b" x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests,"
    b" x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)


class Cors:
    def __init__(self, origins: str = ANY_ORIGIN) -> None:
        """Takes comma-separated origins; `*` allows all, an empty string none."""
        given = [origin.strip() for origin in origins.split(",") if origin.strip()]
        if wrong := [origin for origin in given if not ORIGIN.fullmatch(origin)]:
            raise SettingsError(
                f"LEGATO_CORS_ORIGINS: origins must be like https://app.example, not {', '.join(wrong)}"
            )
        self._origins = frozenset(origin.encode() for origin in given)
        self._any = ANY_ORIGIN.encode() in self._origins

    def headers(self, scope: HttpScope) -> Headers:
        """Returns the CORS headers of a response; none for an origin not allowed."""
        origin = _header(scope, b"origin")
        if origin is None or not (self._any or origin in self._origins):
            return []
        return [
            (b"access-control-allow-origin", ANY_ORIGIN.encode() if self._any else origin),
            (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"origin"),
        ]

    def preflight(self, scope: HttpScope) -> Headers:
        """Returns the further headers of a preflight response. A preflight request carries no key."""
        # All headers are allowed: official clients add headers of their own, and those change.
        asked = _header(scope, b"access-control-request-headers") or b"authorization, content-type"
        return [
            (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
            (b"access-control-allow-headers", asked),
            (b"access-control-max-age", b"%d" % REMEMBERED_S),
        ]


def _header(scope: HttpScope, name: bytes) -> bytes | None:
    for found, value in scope["headers"]:
        if found == name:
            result: bytes = value
            return result
    return None
