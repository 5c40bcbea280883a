"""The API as the playground's page sees it: it answers as it is told, and keeps what it was sent."""

import json
from typing import Any, Final

from playwright.sync_api import Page, Route

from tests.console.harness import API_URL
from tests.console.metering import request_id

CORS: Final = {
    "access-control-allow-origin": "*",
    "access-control-expose-headers": "x-request-id, retry-after",
    "access-control-allow-headers": "authorization, content-type",
}


class Api:
    """Answers the page's requests of each class one after the other."""

    def __init__(self, page: Page) -> None:
        # By class (empty: whichever), with the number of the request; 0: in the order in which they come.
        self.answers: list[tuple[str, int, str, int]] = []
        self.bodies: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        page.route(f"{API_URL}/**", self._answer)

    def stream(
        self, *deltas: Any, finish_reason: str = "stop", error: Any = None, model: str = "", number: int = 0
    ) -> None:
        """Streams these deltas, and texts as such; `error` is how it ends."""
        told = [delta if isinstance(delta, dict) else {"content": delta} for delta in deltas]
        chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in told]
        if error is None:
            chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]})
            chunks.append({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 5}})
        else:
            chunks.append({"error": error})
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.answers.append((model, 200, body, number))

    def refuse(self, status: int, kind: str, code: str, message: str, model: str = "") -> None:
        body = json.dumps({"error": {"message": message, "type": kind, "code": code}})
        self.answers.append((model, status, body, 0))

    def said(self, place: int) -> list[str]:
        """Returns the contents of the messages of a request."""
        return [message["content"] for message in self.bodies[place]["messages"]]

    def _answer(self, route: Route) -> None:
        if route.request.method == "OPTIONS":
            route.fulfill(status=204, headers=CORS)
            return
        asked = json.loads(route.request.post_data or "{}")
        self.bodies.append(asked)
        self.tokens.append(route.request.headers["authorization"])
        found = next((each for each in self.answers if each[0] in ("", asked["model"])), None)
        if found is None:
            route.abort()
            return
        self.answers.remove(found)
        _model, status, body, number = found
        headers = {
            "content-type": "text/event-stream" if status == 200 else "application/json",
            "x-request-id": request_id(number or len(self.bodies)),
            "retry-after": "7",
        }
        route.fulfill(status=status, headers={**CORS, **headers}, body=body)
