"""Servers that speak as Google's Vertex AI does: Gemini at its own path, and Claude."""

from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream, check_message_request
from tests.support.upstreams.anthropic import error as claude_error
from tests.support.upstreams.gemini import GeminiUpstream, check_content_request, error
from tests.support.upstreams.openai import Recorded, Reply, Upstream
from tests.support.upstreams.rules import RuleBroken, require
from tests.support.upstreams.token_server import TokenServer

LOCATION = "/v1/projects/project/locations/northamerica-northeast1"
_UNAUTHENTICATED = "Request had invalid authentication credentials."


class VertexGeminiUpstream(GeminiUpstream):
    path = LOCATION + "/publishers/google/models/{model}:{method:generateContent|streamGenerateContent}"

    def __init__(self, tokens: TokenServer) -> None:
        super().__init__()
        self._tokens = tokens

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{LOCATION}"

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        if not _is_permitted(self._tokens, recorded):
            return error(401, "UNAUTHENTICATED", _UNAUTHENTICATED)
        try:
            request = recorded.json
            require("store" not in request, 'Invalid JSON payload received. Unknown name "store": Cannot find field.')
            check_content_request(request)
        except RuleBroken as broken:
            return error(broken.status, "INVALID_ARGUMENT", str(broken))
        return None


class VertexClaudeUpstream(AnthropicUpstream):
    path = LOCATION + "/publishers/anthropic/models/{model}:{method:rawPredict|streamRawPredict}"

    def __init__(self, tokens: TokenServer) -> None:
        super().__init__()
        self._tokens = tokens

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{LOCATION}"

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        if not _is_permitted(self._tokens, recorded):
            refusal = error(401, "UNAUTHENTICATED", _UNAUTHENTICATED)
            return AnthropicReply(status=401, body=refusal.body)
        try:
            request = recorded.json
            version = request.pop("anthropic_version", None)
            is_known = version in ("vertex-2023-10-16", "2026-10-21")
            require(is_known, "anthropic_version: Field required")
            require("anthropic-version" not in {name.lower() for name in recorded.headers}, "unexpected header")
            require("model" not in request, "model: Extra inputs are not permitted")
            is_stream = recorded.path.endswith(":streamRawPredict")
            require(bool(request.get("stream")) is is_stream, "stream: does not fit the method")
            model = recorded.path.rpartition("/")[2].partition(":")[0].replace("@", "-")
            check_message_request({**request, "model": model}, version)
        except RuleBroken as broken:
            return claude_error(broken.status, "invalid_request_error", str(broken))
        return None


class VertexOpenAIUpstream(Upstream):
    """Vertex's endpoint for clients of OpenAI's."""

    path = LOCATION + "/endpoints/openapi/chat/completions"

    def __init__(self, tokens: TokenServer) -> None:
        super().__init__()
        self._tokens = tokens

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{LOCATION}/endpoints/openapi"

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        if not _is_permitted(self._tokens, recorded):
            return Reply(status=401, body=error(401, "UNAUTHENTICATED", _UNAUTHENTICATED).body)
        return None


def _is_permitted(tokens: TokenServer, recorded: Recorded) -> bool:
    return tokens.is_valid(recorded.headers.get("Authorization", "").removeprefix("Bearer "))
