"""A server that speaks Google's Gemini API, keeps to its rules, and otherwise does as it is told.

The official client is content with it (`test_gemini.py`), in both ways of answering.
"""

import re
from typing import Any

import msgspec

from tests.support.upstreams.openai import Recorded, Reply, Upstream
from tests.support.upstreams.rules import RuleBroken, require

USAGE = {
    "promptTokenCount": 18,
    "cachedContentTokenCount": 5,
    "candidatesTokenCount": 4,
    "thoughtsTokenCount": 3,
    "totalTokenCount": 25,
}

_FIELDS = {
    "contents", "generationConfig", "safetySettings", "serviceTier", "store", "systemInstruction", "toolConfig",
    "tools",
}  # fmt: skip
_GENERATION_FIELDS = {
    "candidateCount", "frequencyPenalty", "maxOutputTokens", "presencePenalty", "responseJsonSchema",
    "responseMimeType", "seed", "stopSequences", "temperature", "thinkingConfig", "topK", "topP",
}  # fmt: skip
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")


class GeminiReply(Reply, kw_only=True):
    """`finish_reason` and `usage` are in Google's words; `events` are its responses as JSON."""

    finish_reason: str | None = "STOP"
    usage: dict[str, Any] | None = msgspec.field(default_factory=USAGE.copy)
    thinking: str = ""
    # Name and arguments of each call.
    calls: list[tuple[str, dict[str, Any]]] = msgspec.field(default_factory=list)
    # Whether the calls have ids: they need not.
    call_ids: bool = False

    @property
    def parts(self) -> list[dict[str, Any]]:
        """Parts, each its own response in a stream."""
        parts: list[dict[str, Any]] = []
        if self.thinking:
            parts.append({"text": self.thinking, "thought": True})
        parts += [{"text": text} for text in self.contents * self.repeat]
        for number, (name, arguments) in enumerate(self.calls):
            call = {"name": name, "args": arguments, **({"id": f"fc-{number}"} if self.call_ids else {})}
            parts.append({"functionCall": call, "thoughtSignature": "c2lnbmF0dXJl"})
        return parts


class GeminiUpstream(Upstream):
    kind = "gemini"
    version = "v1"
    path = "/{version:v1|v1beta}/models/{model}:{method:generateContent|streamGenerateContent}"

    def __init__(self) -> None:
        super().__init__(GeminiReply())

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wants_stream(self, recorded: Recorded) -> bool:
        return recorded.path.endswith(":streamGenerateContent")

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        try:
            _check(recorded)
        except RuleBroken as broken:
            return error(broken.status, "INVALID_ARGUMENT", str(broken))
        return None

    def write_whole(self, reply: Reply, recorded: Recorded) -> dict[str, Any]:
        assert isinstance(reply, GeminiReply)
        return _response(reply.parts, reply.finish_reason, reply.usage)

    def write_stream(self, reply: Reply, recorded: Recorded) -> list[bytes]:
        assert isinstance(reply, GeminiReply)
        events = reply.events
        if events is None:
            events = [msgspec.json.encode(response).decode() for response in _responses(reply)]
        # With CRLF, as Google writes them.
        return [b"data: %b\r\n\r\n" % event.encode() for event in events]


def error(status: int, kind: str, message: str, details: list[dict[str, Any]] | None = None) -> GeminiReply:
    body = {"error": {"code": status, "message": message, "status": kind, "details": details or []}}
    return GeminiReply(status=status, body=msgspec.json.encode(body).decode())


def _response(parts: list[dict[str, Any]], finish_reason: str | None, usage: dict[str, Any] | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": parts}
    if finish_reason is not None:
        candidate["finishReason"] = finish_reason
    response = {"candidates": [candidate], "modelVersion": "gemini-played", "responseId": "played"}
    return response if usage is None else {**response, "usageMetadata": usage}


def _responses(reply: GeminiReply) -> list[dict[str, Any]]:
    """Counts come with every response, and each time they are the whole so far; the end is a response of its own."""
    so_far = None if reply.usage is None else {**reply.usage, "candidatesTokenCount": 1}
    responses = [_response([part], None, so_far) for part in reply.parts]
    if reply.finish_reason is not None:
        responses.append(_response([], reply.finish_reason, reply.usage))
    return responses


def _check(recorded: Recorded) -> None:
    request = recorded.json
    require(recorded.headers.get("x-goog-api-key"), "API key not valid. Please pass a valid API key.")
    check_content_request(request)


def check_content_request(request: dict[str, Any]) -> None:
    for field in request:
        require(field in _FIELDS, f'Invalid JSON payload received. Unknown name "{field}": Cannot find field.')
    for field in request.get("generationConfig", {}):
        require(field in _GENERATION_FIELDS, f'Invalid JSON payload received. Unknown name "{field}"')
    _check_tools(request)
    _check_contents(request.get("contents"))


def _check_tools(request: dict[str, Any]) -> None:
    declarations = [call for tool in request.get("tools", ()) for call in tool["functionDeclarations"]]
    for declaration in declarations:
        require(_NAME.fullmatch(declaration["name"]), "Invalid function name.")
    calling = request.get("toolConfig", {}).get("functionCallingConfig", {"mode": "AUTO"})
    require(calling["mode"] in ("AUTO", "NONE", "ANY", "VALIDATED"), "Invalid mode")
    for name in calling.get("allowedFunctionNames", ()):
        require(name in {declaration["name"] for declaration in declarations}, "allowed_function_names: not found")


def _check_contents(contents: Any) -> None:
    require(contents, "contents is not specified")
    called: list[str] = []
    for content in contents:
        require(content["role"] in ("user", "model"), "Please use a valid role: user, model.")
        parts = content["parts"]
        require(parts, "contents.parts must not be empty.")
        answered = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        require(
            answered == called and (not called or len(parts) == len(called)),
            "Please ensure that the number of function response parts is equal to the number of function call parts.",
        )
        for part in parts:
            require(part.get("text", "some"), "Unable to submit request because it must have a text parameter.")
            response = part.get("functionResponse", {"response": {}})["response"]
            require(isinstance(response, dict), "functionResponse.response must be an object")
            if "functionCall" in part:
                require("thoughtSignature" in part, "Function call is missing a thought_signature.")
                require(isinstance(part["functionCall"]["args"], dict), "functionCall.args must be an object")
        called = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
    require(not called, "Please ensure that function call turn comes before a function response turn.")
