"""A server that speaks Anthropic's Messages API, keeps to its rules, and otherwise does as it is told.

The official client is content with it (`test_anthropic.py`), in both ways of answering.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.support.upstreams.openai import Recorded, Reply, Upstream
from tests.support.upstreams.rules import RuleBroken, require

USAGE = {"input_tokens": 11, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 7}

_FIELDS = {
    "max_tokens", "messages", "metadata", "model", "output_config", "service_tier", "stop_sequences", "stream",
    "system", "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p",
}  # fmt: skip
_SAMPLING = {"temperature", "top_p", "top_k"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
# Models that take system messages in the middle of a conversation.
_TAKES_SYSTEM_INSIDE = ("claude-opus-4-8", "claude-opus-5", "claude-sonnet-5-5", "claude-haiku-6")


class AnthropicReply(Reply, kw_only=True):
    """`finish_reason` and `usage` are in Anthropic's words; `events` are its events as JSON."""

    finish_reason: str | None = "end_turn"
    usage: dict[str, Any] | None = msgspec.field(default_factory=USAGE.copy)
    thinking: str = ""
    # Name and arguments of each call, the latter as pieces of JSON.
    calls: list[tuple[str, list[str]]] = msgspec.field(default_factory=list)

    @property
    def blocks(self) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if self.thinking:
            blocks.append({"type": "thinking", "thinking": self.thinking, "signature": "c2ln"})
        if self.contents:
            blocks.append({"type": "text", "text": "".join(self.contents * self.repeat), "citations": None})
        for number, (name, arguments) in enumerate(self.calls):
            arguments_object = msgspec.json.decode("".join(arguments) or "{}")
            blocks.append({"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments_object})
        return blocks


class AnthropicUpstream(Upstream):
    kind = "anthropic"
    version = "2026-10-21"
    path = "/v1/messages"

    def __init__(self) -> None:
        super().__init__(AnthropicReply())

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        try:
            _check(recorded)
        except RuleBroken as broken:
            kind = "authentication_error" if broken.status == 401 else "invalid_request_error"
            return error(broken.status, kind, str(broken))
        return None

    def write_whole(self, reply: Reply, recorded: Recorded) -> dict[str, Any]:
        assert isinstance(reply, AnthropicReply)
        return _message(recorded, reply.blocks, reply.finish_reason, reply.usage)

    def write_stream(self, reply: Reply, recorded: Recorded) -> list[bytes]:
        assert isinstance(reply, AnthropicReply)
        events = reply.events
        if events is None:
            events = [msgspec.json.encode(event).decode() for event in _events(reply, recorded)]
        return [_write(event) for event in events]


def error(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> AnthropicReply:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_played"}
    return AnthropicReply(status=status, body=msgspec.json.encode(body).decode(), headers=headers or {})


def _write(event: str) -> bytes:
    name = msgspec.json.decode(event)["type"]
    return b"event: %b\ndata: %b\n\n" % (name.encode(), event.encode())


def _message(
    recorded: Recorded, blocks: list[dict[str, Any]], stop_reason: str | None, usage: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "id": "msg_played",
        "type": "message",
        "role": "assistant",
        "model": recorded.json.get("model", "claude-played"),
        "content": blocks,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def _events(reply: AnthropicReply, recorded: Recorded) -> list[dict[str, Any]]:
    """The counts of the input come first, that of the output last, each the whole."""
    first_usage = {**reply.usage, "output_tokens": 1} if reply.usage is not None else None
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": _message(recorded, [], None, first_usage)},
        {"type": "ping"},
    ]
    for index, block in enumerate(reply.blocks):
        begun, deltas = _begin(reply, block)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    if reply.finish_reason is not None:
        delta = {"stop_reason": reply.finish_reason, "stop_sequence": None}
        last_usage = {"output_tokens": reply.usage["output_tokens"]} if reply.usage is not None else None
        events.append({"type": "message_delta", "delta": delta, "usage": last_usage})
    if reply.done:
        events.append({"type": "message_stop"})
    return events


def _begin(reply: AnthropicReply, block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and what is added to it."""
    if block["type"] == "text":
        deltas = [{"type": "text_delta", "text": text} for text in reply.contents * reply.repeat]
        return {**block, "text": ""}, deltas
    if block["type"] == "thinking":
        thought = {"type": "thinking_delta", "thinking": block["thinking"]}
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [thought, signed]
    _, arguments = reply.calls[int(block["id"].removeprefix("toolu_"))]
    # The first piece is usually empty; where there are no arguments, it is the only one.
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *arguments)]


def _check(recorded: Recorded) -> None:
    request = recorded.json
    version = recorded.headers.get("anthropic-version")
    require(version in ("2023-06-01", "2026-10-21"), "anthropic-version: not a valid version")
    is_bearer = recorded.headers.get("Authorization", "").startswith("Bearer ")
    has_key = is_bearer or (version == "2023-06-01" and recorded.headers.get("x-api-key"))
    require(has_key, "invalid credentials", 401)
    check_message_request(request, version)


def check_message_request(request: dict[str, Any], version: str | None) -> None:
    """Checks the body of a request for a message, with its model."""
    for field in request:
        require(field in _FIELDS, f"{field}: Extra inputs are not permitted")
    require(version != "2026-10-21" or not _SAMPLING & set(request), "sampling parameters are not supported")
    require(0 <= request.get("temperature", 1) <= 1, "temperature: range: 0..1")
    max_tokens = request.get("max_tokens")
    require(isinstance(max_tokens, int) and max_tokens >= 1, "max_tokens: Field required")
    is_short = 3600 * int(max_tokens or 0) <= 600 * 128_000
    require(request.get("stream") or is_short, "streaming is required for long requests")
    for stop in request.get("stop_sequences", ()):
        require(stop.strip(), "stop_sequences: each stop sequence must contain non-whitespace")
    _check_marks(request)
    _check_tools(request)
    takes_system = request["model"].startswith(_TAKES_SYSTEM_INSIDE)
    _check_system_inside([message["role"] for message in request["messages"]], takes_system=takes_system)
    others = [message for message in request["messages"] if message["role"] != "system"]
    _check_messages(others, {tool["name"] for tool in request.get("tools", ())})


def _check_system_inside(roles: list[str], *, takes_system: bool) -> None:
    require(takes_system or "system" not in roles, "messages: role 'system' is not supported on this model")
    for before, role, after in zip(["", *roles], roles, [*roles[1:], "assistant"], strict=False):
        is_placed = before == "user" and after == "assistant"
        require(role != "system" or is_placed, "messages: a system message must follow a user turn, and end it")


def blocks_of(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields copies of the blocks in the order in which they are cached, those of messages with their role."""
    yield from ({**tool} for tool in request.get("tools", ()))
    yield from ({**block} for block in _as_blocks(request.get("system", [])))
    for message in request["messages"]:
        yield from ({**block, "role": message["role"]} for block in _as_blocks(message["content"]))


def _as_blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _check_marks(request: dict[str, Any]) -> None:
    marks = [block["cache_control"] for block in blocks_of(request) if "cache_control" in block]
    require(len(marks) <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    for mark in marks:
        require(mark["type"] == "ephemeral", "cache_control: Input tag does not match any of the expected tags")
    lives = [mark.get("ttl", "5m") for mark in marks]
    is_ordered = lives == sorted(lives, key=["1h", "5m"].index)
    require(is_ordered, "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")


def _check_tools(request: dict[str, Any]) -> None:
    names = [tool["name"] for tool in request.get("tools", ())]
    for tool in request.get("tools", ()):
        require(_NAME.fullmatch(tool["name"]), "tools.name: String should match pattern")
        require(tool["input_schema"]["type"] == "object", "tools.input_schema.type: Input should be 'object'")
    choice = request.get("tool_choice", {"type": "auto"})
    require(choice["type"] in ("auto", "any", "tool", "none"), "tool_choice: unknown type")
    require(choice["type"] != "tool" or choice["name"] in names, "tool_choice: tool not found")
    is_forced = choice["type"] in ("any", "tool")
    thinks = request.get("thinking", {}).get("type") == "enabled"
    require(not (is_forced and thinks), "Thinking may not be enabled when tool_choice forces tool use.")


def _check_messages(messages: list[dict[str, Any]], tool_names: set[str]) -> None:
    require(messages and messages[0]["role"] == "user", "messages: first message must use the user role")
    called: set[str] = set()
    for message in messages:
        require(message["role"] in ("user", "assistant"), "messages.role: unexpected role")
        blocks = _as_blocks(message["content"])
        require(blocks, "messages: all messages must have non-empty content")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        require(set(results) == called and len(results) == len(called), "tool_use ids without tool_result blocks")
        first_blocks = [block["type"] for block in blocks[: len(results)]]
        require(first_blocks == ["tool_result"] * len(results), "tool_result blocks must come first")
        for block in blocks:
            is_blank = block["type"] == "text" and not block["text"].strip()
            require(not is_blank, "messages: text content blocks must contain non-whitespace text")
        calls = [block for block in blocks if block["type"] == "tool_use"]
        for call in calls:
            require(_NAME.fullmatch(call["id"]), "tool_use.id: String should match pattern")
            require(isinstance(call["input"], dict), "tool_use.input: Input should be a valid dictionary")
            require(call["name"] in tool_names, "Requests which have tool_use blocks must define tools")
        called = {call["id"] for call in calls}
    require(not called, "tool_use ids without tool_result blocks")
    last = _as_blocks(messages[-1]["content"])[-1]
    is_prefix = messages[-1]["role"] == "assistant" and last["type"] == "text"
    require(
        not is_prefix or last["text"] == last["text"].rstrip(),
        "messages: final assistant content cannot end with trailing whitespace",
    )
