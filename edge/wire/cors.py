"""Lets pages of other origins call the service from a browser.

Keys travel in a header that the page sets itself and never in a cookie, so there is nothing of the visitor's that a
page could borrow: every origin may ask, unless the settings name some.
"""

import re

from edge.wire.asgi import Headers, HttpScope
from services.chassis.settings import SettingsError

ANY_ORIGIN = "*"
# As browsers name one: in small letters, without a path, not even a slash.
ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#A-Z]+")
# How long a browser may remember the answer to its question.
REMEMBERED_S = 86_400

# What a page may read of an answer, beside its body.
EXPOSED = (
    b"x-request-id, retry-after, retry-after-ms, x-should-retry, x-original-request-id,"
    b" x-legato-max-tokens, x-legato-attempt,"
    b" x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests,"
    b" x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)


class Cors:
    def __init__(self, origins: str = ANY_ORIGIN) -> None:
        """`origins` has commas between them; `*` is all of them, and nothing is none."""
        given = [origin.strip() for origin in origins.split(",") if origin.strip()]
        if wrong := [origin for origin in given if not ORIGIN.fullmatch(origin)]:
            raise SettingsError(
                f"LEGATO_CORS_ORIGINS: no browser names {', '.join(wrong)} so, but as in https://app.example"
            )
        self._origins = frozenset(origin.encode() for origin in given)
        self._any = ANY_ORIGIN.encode() in self._origins

    def headers(self, scope: HttpScope) -> Headers:
        """What every answer to a page carries; nothing where no page asks."""
        origin = _header(scope, b"origin")
        if origin is None or not (self._any or origin in self._origins):
            return []
        return [
            (b"access-control-allow-origin", ANY_ORIGIN.encode() if self._any else origin),
            (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"origin"),
        ]

    def preflight(self, scope: HttpScope) -> Headers:
        """What is said beside that to a browser that asks whether its page may ask. It has no key yet."""
        # Whatever the page wants to send may come: official clients add headers of their own, and those change.
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
