"""CORS: lets pages of other origins call the service from a browser.

Keys are sent in a header that the page sets itself and never in a cookie, so no page can act with a visitor's
credentials: every origin is allowed, unless the settings list some.
"""

from collections.abc import Awaitable, Collection
from typing import Final

from starlette.datastructures import Headers as RequestHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from edge.api.description import HEADERS

# How long a browser may cache a preflight response.
_CACHED_S: Final = 86_400

# The response headers that a page may read: all of ours.
EXPOSED: Final = tuple(name for name in HEADERS if name != "allow")


class EdgeCorsMiddleware(CORSMiddleware):
    """Starlette's, except that a preflight response has neither a body nor a status for an origin that is not allowed:
    a browser reads its headers only, and all errors of the service have one shape."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=("GET", "POST", "OPTIONS"),
            # Official clients add headers of their own, and those change.
            allow_headers=("*",),
            expose_headers=EXPOSED,
            max_age=_CACHED_S,
        )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:  # type: ignore[override]
        if scope["method"] == "OPTIONS":
            # It carries no key.
            return self._preflight_response(scope)(scope, receive, send)
        if b"origin" in dict(scope["headers"]):
            return super().__call__(scope, receive, send)
        # The request of no page: nothing needs to be added to its response.
        return self.app(scope, receive, send)

    def _preflight_response(self, scope: Scope) -> Response:
        asked = RequestHeaders(scope=scope).get("access-control-request-headers", "authorization, content-type")
        headers = {**self.preflight_headers, **self.headers(scope), "Access-Control-Allow-Headers": asked}
        return Response(status_code=204, headers=headers)

    def headers(self, scope: Scope) -> dict[str, str]:
        """Returns the CORS headers of a response; none for an origin that is not allowed."""
        origin = RequestHeaders(scope=scope).get("origin")
        if origin is None or not self.is_allowed_origin(origin):
            return {}
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin", **self.simple_headers}
