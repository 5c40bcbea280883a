"""Refuses chats that exceed the capacity before a task is created for them.

Under overload, cheap refusals leave more CPU time for the chats that are served.
"""

from edge.api.cors import EdgeCorsMiddleware
from edge.api.dialects import CHATS
from edge.chat.edge_state import EdgeState
from edge.chat.incoming import INFERENCE
from edge.wire.responses import JSON, error_headers
from services.chassis.errors import LegatoError
from services.chassis.http.answer import Answer
from services.chassis.http.asgi import Headers, HttpScope
from services.chassis.http.request_id import new_request_id


class EarlyRefusals:
    def __init__(self, edge: EdgeState, cors: EdgeCorsMiddleware) -> None:
        self._edge = edge
        self._cors = cors

    def __call__(self, scope: HttpScope) -> Answer | None:
        """Renders the refusal; returns None for a request that has to be processed."""
        if not self._edge.saturation.is_reached or scope["method"] != "POST":
            return None
        if (chat := CHATS.get(scope["path"])) is None:
            return None
        refusal = self.refusal(scope["headers"])
        if refusal is None:
            return None
        error, rates = refusal
        request_id = new_request_id()
        self._edge.record_refusal(error, request_id, chat.api)
        cors = [(name.lower().encode(), value.encode()) for name, value in self._cors.headers(scope).items()]
        body, of_dialect = chat.render_error(error, request_id)
        headers = [JSON, *error_headers(error), *rates, (b"x-request-id", request_id.encode()), *of_dialect, *cors]
        return Answer(error.wire.http_status, headers, body)

    def refusal(self, headers: Headers) -> tuple[LegatoError, Headers] | None:
        """Returns the error that a chat would get for saturation alone, and the key's rate headers."""
        if self._edge.principals.maintenance.is_on:
            return None
        principal = self._edge.principals.recall(headers)
        if principal is None or not principal.may(INFERENCE):
            return None
        rates = self._edge.metering.last_rates(principal)
        error = None if rates is None else self._edge.saturation.gate.refusal(principal.key_id)
        return None if error is None or rates is None else (error, rates)
