"""A server that speaks as a deployment of Azure's, by key or by a token of Entra's."""

import msgspec

from tests.support.upstreams.openai import Recorded, Reply, Upstream
from tests.support.upstreams.rules import RuleBroken, require
from tests.support.upstreams.token_server import TokenServer

API_KEY = "canary-of-an-azure-key"
API_VERSION = "2025-01-01-preview"


class AzureUpstream(Upstream):
    path = "/openai/deployments/{deployment}/chat/completions"

    def __init__(self, tokens: TokenServer | None = None) -> None:
        super().__init__()
        self._tokens = tokens

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/openai/deployments/chat"

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        try:
            require(f"api-version={API_VERSION}" in recorded.query.split("&"), "Resource not found", 404)
            token = recorded.headers.get("Authorization", "").removeprefix("Bearer ")
            is_known = self._tokens is not None and self._tokens.is_valid(token)
            is_permitted = is_known or recorded.headers.get("api-key") == API_KEY
            require(is_permitted, "Access denied due to invalid subscription key or wrong API endpoint.", 401)
        except RuleBroken as broken:
            body = msgspec.json.encode({"error": {"code": str(broken.status), "message": str(broken)}})
            return Reply(status=broken.status, body=body.decode())
        return None
