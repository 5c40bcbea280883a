"""Servers of models that think before they call tools, and that refuse what their vendors refuse when their thoughts do
not come back, in the words that vendors have for it.

Each answers a prompt with calls, one turn after another, until it has seen `loops` of them, and then in text. What came
back of its thoughts is counted.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream
from tests.support.upstreams.gemini import GeminiReply, GeminiUpstream
from tests.support.upstreams.openai import Recorded, Reply, Upstream

FUNCTION: Final = "get_weather"
DONE: Final = "It rains."


def thought_of(turn: int, size: int = 0) -> str:
    """Returns what a model thinks in a turn; text that does not compress well, if it is to be long."""
    words = (hashlib.sha256(f"{turn} {number}".encode()).hexdigest() for number in range(size // 65))
    return " ".join([f"Turn {turn}: naïve ✓ thought.", *words])


@dataclass
class Loop:
    """How the models of this module behave, and what they saw."""

    loops: int = 3
    calls_at_once: int = 1
    size: int = 0
    # The last request's messages with calls, and how many of them had the very thought of their turn.
    asked: int = 0
    returned: int = 0


def turns_of(messages: Sequence[Mapping[str, Any]], has_calls: Any) -> int:
    return sum(1 for message in messages if has_calls(message))


class _Thinking(Upstream):
    """On OpenAI's wire."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Loop()
        self.refused: list[str] = []

    def mistake_in(self, request: Mapping[str, Any]) -> str:
        raise NotImplementedError

    def delta_of(self, turn: int) -> list[dict[str, Any]]:
        """Returns the deltas that come before the calls of a turn."""
        raise NotImplementedError

    def is_returned(self, message: Mapping[str, Any], turn: int) -> bool:
        raise NotImplementedError

    def call_id(self, turn: int, place: int) -> str:
        return f"call_{turn:02}_{place}_{hashlib.sha256(str(turn).encode()).hexdigest()[:12]}"

    def call_of(self, turn: int, place: int) -> dict[str, Any]:
        function = {"name": FUNCTION, "arguments": json.dumps({"city": f"{turn}.{place}"})}
        return {"index": place, "id": self.call_id(turn, place), "type": "function", "function": function}

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        request = recorded.json
        called = [message for message in request["messages"] if message.get("tool_calls")]
        self.loop.asked = len(called)
        self.loop.returned = sum(self.is_returned(message, turn) for turn, message in enumerate(called))
        mistake = self.mistake_in(request)
        if not mistake:
            return None
        self.refused.append(mistake)
        error = {"message": mistake, "type": "invalid_request_error", "param": None, "code": "invalid_request_error"}
        return Reply(status=400, body=json.dumps({"error": error}))

    def reply_to(self, recorded: Recorded) -> Reply:
        turn = turns_of(recorded.json["messages"], lambda message: message.get("tool_calls"))
        if turn >= self.loop.loops:
            return Reply(contents=[DONE])
        deltas = self.delta_of(turn)
        calls = [self.call_of(turn, place) for place in range(self.loop.calls_at_once)]
        if not recorded.json.get("stream"):
            return Reply(body=msgspec.json.encode(_whole(deltas, calls)).decode("latin-1"))
        chunks = [*deltas, *({"tool_calls": [call]} for call in calls)]
        events = [msgspec.json.encode(_chunk(delta)).decode() for delta in chunks]
        return Reply(events=[*events, msgspec.json.encode(_chunk({}, "tool_calls")).decode(), _USAGE_EVENT])


_USAGE: Final = {
    "prompt_tokens": 900,
    "completion_tokens": 70,
    "total_tokens": 970,
    "completion_tokens_details": {"reasoning_tokens": 50},
    "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 4},
}
_USAGE_EVENT: Final = json.dumps({"choices": [], "usage": _USAGE})


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def _whole(deltas: Sequence[dict[str, Any]], calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    for delta in deltas:
        for name, value in delta.items():
            message[name] = message[name] + value if name in message and value is not None else value
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"object": "chat.completion", "choices": [choice], "usage": _USAGE}


class DeepSeekUpstream(_Thinking):
    """DeepSeek V4: refuses calls without reasoning, and with an empty one."""

    def delta_of(self, turn: int) -> list[dict[str, Any]]:
        text = thought_of(turn, self.loop.size)
        return [{"reasoning_content": text[:9]}, {"reasoning_content": text[9:]}]

    def is_returned(self, message: Mapping[str, Any], turn: int) -> bool:
        return message.get("reasoning_content") == thought_of(turn, self.loop.size)

    def mistake_in(self, request: Mapping[str, Any]) -> str:
        has_calls = [message for message in request["messages"] if message.get("tool_calls")]
        if all(message.get("reasoning_content") for message in has_calls):
            return ""
        return "The `reasoning_content` in the thinking mode must be passed back to the API."


class MoonshotUpstream(DeepSeekUpstream):
    """Kimi K2.5, whose templates show the ids of calls to the model."""

    def call_id(self, turn: int, place: int) -> str:
        return f"functions.{FUNCTION}:{turn * 10 + place}"

    def is_returned(self, message: Mapping[str, Any], turn: int) -> bool:
        ids = [call["id"] for call in message["tool_calls"]]
        return super().is_returned(message, turn) and ids[0] == self.call_id(turn, 0)

    def mistake_in(self, request: Mapping[str, Any]) -> str:
        for index, message in enumerate(request["messages"]):
            if message.get("tool_calls") and not message.get("reasoning_content"):
                return (
                    "thinking is enabled but reasoning_content is missing in assistant tool call message at index"
                    f" {index}"
                )
        return ""


class VllmUpstream(DeepSeekUpstream):
    """A server of open models: `reasoning`, and it works without, though less well."""

    def delta_of(self, turn: int) -> list[dict[str, Any]]:
        return [{"reasoning": delta["reasoning_content"]} for delta in super().delta_of(turn)]

    def is_returned(self, message: Mapping[str, Any], turn: int) -> bool:
        return message.get("reasoning") == thought_of(turn, self.loop.size)

    def mistake_in(self, request: Mapping[str, Any]) -> str:
        return ""


class OpenRouterUpstream(_Thinking):
    """OpenRouter before a model whose details must come back as they were."""

    def _details(self, turn: int) -> list[dict[str, Any]]:
        sealed = {
            "type": "reasoning.encrypted",
            "data": f"c2VhbGVk{turn}",
            "id": f"rs_{turn}",
            "format": "x",
            "index": 1,
        }
        text = {"type": "reasoning.text", "text": thought_of(turn), "format": "x", "index": 0, "signature": f"s{turn}"}
        return [text, sealed]

    def delta_of(self, turn: int) -> list[dict[str, Any]]:
        text, sealed = self._details(turn)
        said = text["text"]
        first = {**text, "text": said[:7], "signature": None}
        second = {**text, "text": said[7:], "signature": None}
        last = {**text, "text": "", "signature": text["signature"]}
        return [
            {"reasoning": said[:7], "reasoning_details": [first]},
            {"reasoning": said[7:], "reasoning_details": [second]},
            {"reasoning": "", "reasoning_details": [last, sealed]},
        ]

    def is_returned(self, message: Mapping[str, Any], turn: int) -> bool:
        return bool(message.get("reasoning_details") == self._details(turn))

    def mistake_in(self, request: Mapping[str, Any]) -> str:
        return ""


class GoogleOpenAIUpstream(_Thinking):
    """Gemini 3 on OpenAI's wire."""

    def call_of(self, turn: int, place: int) -> dict[str, Any]:
        call = super().call_of(turn, place)
        if not place:
            call["extra_content"] = {"google": {"thought_signature": signature_of(turn)}}
        del call["index"]
        return call

    def delta_of(self, turn: int) -> list[dict[str, Any]]:
        return []

    def is_returned(self, message: Mapping[str, Any], turn: int) -> bool:
        signed = message["tool_calls"][0].get("extra_content", {})
        return bool(signed == {"google": {"thought_signature": signature_of(turn)}})

    def mistake_in(self, request: Mapping[str, Any]) -> str:
        for position, message in enumerate(request["messages"]):
            if message.get("tool_calls") and "extra_content" not in message["tool_calls"][0]:
                return f"Function call is missing a thought_signature in functionCall parts. position {position}"
        return ""


def signature_of(turn: int) -> str:
    return f"c2lnbmF0dXJl{turn:04}"


class ThinkingClaude(AnthropicUpstream):
    """Claude with extended thinking: it checks that thoughts are there where they must be, and are its own."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Loop()
        self.refused: list[str] = []

    def _blocks(self, turn: int) -> list[dict[str, Any]]:
        text = thought_of(turn, self.loop.size)
        hidden = [{"type": "redacted_thinking", "data": f"aGlkZGVu{turn}"}] if turn % 2 else []
        return [{"type": "thinking", "thinking": text, "signature": _signed(text)}, *hidden]

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        refusal = super().refusal_of(recorded)
        if refusal is None and (mistake := self._mistake_in(recorded.json)):
            self.refused.append(mistake)
            body = {"type": "error", "error": {"type": "invalid_request_error", "message": mistake}}
            return AnthropicReply(status=400, body=json.dumps(body))
        if refusal is not None:
            self.refused.append(refusal.body or "")
        return refusal

    def _mistake_in(self, request: Mapping[str, Any]) -> str:
        answers = [message["content"] for message in request["messages"] if message["role"] == "assistant"]
        called = [content for content in answers if any(block["type"] == "tool_use" for block in content)]
        self.loop.asked = len(called)
        self.loop.returned = sum(
            [block for block in content if "thinking" in block["type"]] == self._blocks(turn)
            for turn, content in enumerate(called)
        )
        for number, content in enumerate(answers):
            for place, block in enumerate(content):
                if block["type"] == "thinking" and block["signature"] != _signed(block["thinking"]):
                    return f"messages.{number}.content.{place}: Invalid `signature` in `thinking` block"
        is_budgeted = request.get("thinking", {}).get("type") == "enabled"
        is_after_call = request["messages"][-1]["content"][0]["type"] == "tool_result"
        if is_budgeted and is_after_call and "thinking" not in answers[-1][0]["type"]:
            found = answers[-1][0]["type"]
            return (
                f"messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When"
                " `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the"
                " lastmost set of `tool_use` and `tool_result` blocks)."
            )
        return ""

    def reply_to(self, recorded: Recorded) -> Reply:
        content = [block for message in recorded.json["messages"] for block in message["content"]]
        turn = turns_of(recorded.json["messages"], lambda message: message["role"] == "assistant")
        if turn >= self.loop.loops:
            return AnthropicReply(contents=[DONE])
        assert content
        calls = [
            {
                "type": "tool_use",
                "id": f"toolu_{turn:02}_{place}",
                "name": FUNCTION,
                "input": {"city": f"{turn}.{place}"},
            }
            for place in range(self.loop.calls_at_once)
        ]
        said = [{"type": "text", "text": "Let me look."}] if turn % 3 == 0 else []
        return _ClaudeReply(said_blocks=[*self._blocks(turn), *said, *calls], finish_reason="tool_use", contents=[])

    def write_whole(self, reply: Reply, recorded: Recorded) -> dict[str, Any]:
        whole = super().write_whole(reply, recorded)
        return {**whole, "content": reply.said_blocks} if isinstance(reply, _ClaudeReply) else whole

    def write_stream(self, reply: Reply, recorded: Recorded) -> list[bytes]:
        if isinstance(reply, _ClaudeReply):
            reply.events = [json.dumps(event) for event in _claude_events(reply)]
        return super().write_stream(reply, recorded)


class _ClaudeReply(AnthropicReply, kw_only=True):
    said_blocks: list[dict[str, Any]] = msgspec.field(default_factory=list)


def _signed(text: str) -> str:
    return hashlib.sha256(f"signed {text}".encode()).hexdigest()


def _claude_events(reply: _ClaudeReply) -> list[dict[str, Any]]:
    usage = {"input_tokens": 900, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"type": "message", "usage": usage}}]
    for index, block in enumerate(reply.said_blocks):
        deltas: list[dict[str, Any]] = []
        begun = dict(block)
        if block["type"] == "thinking":
            text = block["thinking"]
            deltas += [{"type": "thinking_delta", "thinking": part} for part in (text[:5], text[5:])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            begun |= {"thinking": "", "signature": ""}
        elif block["type"] == "text":
            deltas.append({"type": "text_delta", "text": block["text"]})
            begun["text"] = ""
        elif block["type"] == "tool_use":
            deltas.append({"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
            begun["input"] = {}
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {"type": "message_delta", "delta": {"stop_reason": reply.finish_reason}, "usage": {"output_tokens": 9}}
    )
    return [*events, {"type": "message_stop"}]


class ThinkingGemini(GeminiUpstream):
    """Gemini 3: the first call of each step is signed, and has to be when it comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Loop()
        self.refused: list[str] = []

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        called = [
            [part for part in content["parts"] if "functionCall" in part]
            for content in recorded.json["contents"]
            if content["role"] == "model"
        ]
        called = [calls for calls in called if calls]
        self.loop.asked = len(called)
        self.loop.returned = sum(
            calls[0].get("thoughtSignature") == signature_of(turn) for turn, calls in enumerate(called)
        )
        for position, calls in enumerate(called):
            if not calls[0].get("thoughtSignature"):
                mistake = (
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to"
                    f" work correctly. Additional data, function call `default_api:{FUNCTION}`, position {position}."
                )
                self.refused.append(mistake)
                error = {"code": 400, "message": mistake, "status": "INVALID_ARGUMENT"}
                return GeminiReply(status=400, body=json.dumps({"error": error}))
        return None

    def reply_to(self, recorded: Recorded) -> Reply:
        turn = turns_of(recorded.json["contents"], lambda content: content["role"] == "model")
        if turn >= self.loop.loops:
            return GeminiReply(contents=[DONE])
        return _GeminiReply(
            contents=[],
            thinking=thought_of(turn),
            calls=[(FUNCTION, {"city": f"{turn}.{place}"}) for place in range(self.loop.calls_at_once)],
            signature=signature_of(turn),
        )


class _GeminiReply(GeminiReply, kw_only=True):
    signature: str = ""

    @property
    def parts(self) -> list[dict[str, Any]]:
        parts = [{name: value for name, value in part.items() if name != "thoughtSignature"} for part in super().parts]
        next(part for part in parts if "functionCall" in part)["thoughtSignature"] = self.signature
        return parts
