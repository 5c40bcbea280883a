"""A server that speaks OpenAI's Responses API, keeps to its rules, and otherwise does as it is told.

The official client is content with it (`test_responses.py`), in both ways of answering. What it refuses, it refuses in
the words that users quote; the tests are named by their threads.
"""

import base64
import hashlib
from typing import Any, Final

import msgspec

from tests.support.upstreams.openai import Recorded, Reply, Upstream
from tests.support.upstreams.openai_models import EFFORTS, chat_refusal_of, refusal
from tests.support.upstreams.responses_rules import (
    Refused,
    check_call_id,
    check_custom_tool,
    check_message,
    require,
)

USAGE: Final = {
    "input_tokens": 18,
    "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 25,
}
_FIELDS: Final = {
    "include", "input", "instructions", "max_output_tokens", "metadata", "model", "moderation", "parallel_tool_calls",
    "previous_response_id", "prompt_cache_key", "prompt_cache_options", "reasoning", "safety_identifier",
    "service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs",
    "top_p", "truncation", "user",
}  # fmt: skip
# By their names; what is known of others is nothing.
_DO_NOT_REASON: Final = ("gpt-4o",)
_INCOMPLETE: Final = ("max_output_tokens", "content_filter")


class ResponsesReply(Reply, kw_only=True):
    """`finish_reason` is a status, or the reason why the response is incomplete; `events` are its events as JSON.
    `reasoning` are the parts of its summary."""

    finish_reason: str | None = "completed"
    usage: dict[str, Any] | None = msgspec.field(default_factory=USAGE.copy)
    # Name and arguments of each call, the latter as pieces of JSON.
    calls: list[tuple[str, list[str]]] = msgspec.field(default_factory=list)
    # The items, in place of those that would be made of the fields above.
    said_items: list[dict[str, Any]] | None = None
    # Whether the events of an item's parts are left out, as some servers do.
    ends_only: bool = False

    @property
    def items(self) -> list[dict[str, Any]]:
        if self.said_items is not None:
            return self.said_items
        items: list[dict[str, Any]] = []
        if self.reasoning:
            items.append(reasoning_item("rs_1", "thought", self.reasoning))
        parts = []
        if self.contents:
            parts.append(text_part("".join(self.contents * self.repeat)))
        if self.refusals:
            parts.append({"type": "refusal", "refusal": "".join(self.refusals)})
        if parts:
            items.append(message_item("msg_1", *parts))
        for number, (name, arguments) in enumerate(self.calls):
            items.append(call_item(f"call_{number}", name, "".join(arguments)))
        return items


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(item_id: str, *parts: dict[str, Any], phase: str = "final_answer") -> dict[str, Any]:
    content = list(parts)
    return {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": content} | {
        "phase": phase
    }


def call_item(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def custom_call_item(call_id: str, name: str, given: str) -> dict[str, Any]:
    return {
        "type": "custom_tool_call",
        "id": f"ctc_{call_id}",
        "call_id": call_id,
        "name": name,
        "input": given,
        "status": "completed",
    }


def reasoning_item(item_id: str, thought: str, summary: list[str] | None = None, key: str = "k") -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": item_id,
        "summary": [{"type": "summary_text", "text": text} for text in summary or ()],
        "encrypted_content": encrypted(thought, key),
        "status": "completed",
    }


def encrypted(thought: str, key: str = "k") -> str:
    data = base64.urlsafe_b64encode(thought.encode()).decode()
    return f"gAAA{hashlib.sha256(f'{key} {data}'.encode()).hexdigest()}{data}"


class ResponsesUpstream(Upstream):
    kind = "responses"
    path = "/v1/responses"

    def __init__(self, default_reply: Reply | None = None) -> None:
        super().__init__(default_reply or ResponsesReply())
        # By which reasoning is encrypted. Another one cannot read it.
        self.key = "k"
        # The organization is not verified.
        self.is_unverified = False
        # How Azure's servers of some kinds differ: they want the ids of reasoning, or refuse that of several turns.
        self.wants_ids = False
        self.takes_one_turn = False
        # Models that take no `include`.
        self.refuses_encrypted: set[str] = set()
        # Models that have no custom tools.
        self.refuses_custom: set[str] = set()
        self.refused: list[str] = []

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        try:
            self.check(recorded.json)
        except Refused as refused:
            self.refused.append(refused.message)
            return refused.reply
        return None

    def check(self, request: dict[str, Any]) -> None:
        for name in request:
            require(name in _FIELDS, f"Unknown parameter: '{name}'.", name, "unknown_parameter")
        self._check_model(request)
        self._check_tools(request)
        self._check_input(request)

    def _check_model(self, request: dict[str, Any]) -> None:
        model, reasoning = request["model"], request.get("reasoning", {})
        efforts, usual = EFFORTS.get(model, ((), ""))
        limit = request.get("max_output_tokens", 16)
        require(
            limit >= 16,
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got"
            f" {limit} instead.",
            "max_output_tokens",
            "integer_below_min_value",
        )
        effort = reasoning.get("effort", usual)
        if model in _DO_NOT_REASON:
            for name in reasoning:
                message = f"Unsupported parameter: 'reasoning.{name}' is not supported with this model."
                require(False, message, f"reasoning.{name}", "unsupported_parameter")
        elif efforts and effort not in efforts:
            *others, last = (f"'{each}'" for each in efforts)
            listed = f"{', '.join(others)}, and {last}."
            message = f"Unsupported value: '{effort}' is not supported with the '{model}' model. Supported values are:"
            require(False, f"{message} {listed}", "reasoning.effort", "unsupported_value")
        require(
            not (self.is_unverified and "summary" in reasoning),
            "Your organization must be verified to generate reasoning summaries. Please go to:"
            " https://platform.openai.com/settings/organization/general and click on Verify Organization. If you just"
            " verified, it can take up to 15 minutes for access to propagate.",
            "reasoning.summary",
            "unsupported_value",
        )
        takes_encrypted = model not in _DO_NOT_REASON and model not in self.refuses_encrypted
        require(
            takes_encrypted or "include" not in request,
            "Encrypted content is not supported with this model.",
            "include",
        )
        if efforts and effort != "none":
            for name in ("temperature", "top_p"):
                message = f"Unsupported parameter: '{name}' is not supported with this model."
                require(name not in request, message, name, "unsupported_parameter")

    def _check_tools(self, request: dict[str, Any]) -> None:
        names = []
        for place, tool in enumerate(request.get("tools", ())):
            missing = f"Missing required parameter: 'tools[{place}].name'."
            require("name" in tool, missing, f"tools[{place}].name", "missing_required_parameter")
            names.append((tool["type"], tool["name"]))
            if tool["type"] == "custom":
                check_custom_tool(place, tool, takes_custom=request["model"] not in self.refuses_custom)
                continue
            schema = tool.get("parameters") or {}
            is_closed = schema.get("additionalProperties") is False
            require(
                not tool.get("strict", True) or is_closed,
                f"Invalid schema for function '{tool['name']}': In context=(), 'additionalProperties' is required to be"
                " supplied and to be false.",
                f"tools[{place}].parameters",
                "invalid_function_parameters",
            )
        choice = request.get("tool_choice", "auto")
        chosen = choice if isinstance(choice, dict) else {}
        for tool in chosen.get("tools", [chosen] if "name" in chosen else []):
            message = f"Tool choice '{tool['type']}' not found in 'tools' parameter."
            require((tool["type"], tool.get("name")) in names, message, "tool_choice")
        answer_format = request.get("text", {}).get("format", {})
        if answer_format.get("type") == "json_object":
            require(
                "json" in str(request["input"]).lower(),
                "Response input messages must contain the word 'json' in some form to use 'text.format' of type"
                " 'json_object'.",
                "input",
            )
        elif answer_format.get("type") == "json_schema":
            missing = "Missing required parameter: 'text.format.name'."
            require("name" in answer_format, missing, "text.format.name", "missing_required_parameter")

    def _check_input(self, request: dict[str, Any]) -> None:
        asked: dict[str, bool] = {}
        custom: set[str] = set()
        thinking_turns: set[int] = set()
        turn, items = 0, request["input"]
        for place, item in enumerate(items):
            kind = item.get("type", "message")
            if kind == "message":
                check_message(place, item)
                turn += item["role"] == "user"
            elif kind == "function_call":
                check_call_id(place, item)
                asked[item["call_id"]] = False
            elif kind == "custom_tool_call":
                check_call_id(place, item)
                require(
                    isinstance(item.get("input"), str), f"Missing required parameter: 'input[{place}].input'.", None
                )
                asked[item["call_id"]] = False
                custom.add(item["call_id"])
            elif kind in ("function_call_output", "custom_tool_call_output"):
                check_call_id(place, item)
                is_custom = kind == "custom_tool_call_output"
                called = "custom tool call" if is_custom else "function call"
                message = f"No tool call found for {called} output with call_id {item['call_id']}."
                require(item["call_id"] in asked and (item["call_id"] in custom) is is_custom, message, "input")
                asked[item["call_id"]] = True
                turn += items[place - 1].get("type") not in ("function_call_output", "custom_tool_call_output")
            elif kind == "reasoning":
                self._check_reasoning(request, place)
                thinking_turns.add(turn)
        for call_id, is_answered in asked.items():
            require(is_answered, f"No tool output found for function call {call_id}.", "input")
        if self.takes_one_turn:
            message = "Conflicting authenticated continuation identities"
            require(len(thinking_turns) < 2, message, "input", "invalid_value")

    def _check_reasoning(self, request: dict[str, Any], place: int) -> None:
        item, items = request["input"][place], request["input"]
        missing = f"Missing required parameter: 'input[{place}].summary'."
        require("summary" in item, missing, f"input[{place}].summary", "missing_required_parameter")
        require("status" not in item, f"Unknown parameter: 'input[{place}].status'.", f"input[{place}].status")
        if self.wants_ids:
            require("id" in item, "The request payload is invalid.", None, "invalid_payload")
        else:
            require(
                "id" not in item,
                f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false. Try"
                " again with `store` set to true, or remove this item from your input.",
                "input",
                status=404,
            )
        following = items[place + 1] if place + 1 < len(items) else {}
        is_followed = (
            following.get("type") in ("reasoning", "function_call", "custom_tool_call")
            or following.get("role") == "assistant"
        )
        message = f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
        require(is_followed, message, "input")
        content = item["encrypted_content"]
        data = content[68:]
        is_own = content == f"gAAA{hashlib.sha256(f'{self.key} {data}'.encode()).hexdigest()}{data}"
        shown = f"{content[:4]}...{content[-4:]}"
        message = f"The encrypted content {shown} could not be verified. Reason: Encrypted content could not be"
        require(is_own, f"{message} decrypted or parsed.", None, "invalid_encrypted_content")

    def write_whole(self, reply: Reply, recorded: Recorded) -> dict[str, Any]:
        assert isinstance(reply, ResponsesReply)
        return _response(reply, recorded, reply.items)

    def write_stream(self, reply: Reply, recorded: Recorded) -> list[bytes]:
        assert isinstance(reply, ResponsesReply)
        events = reply.events
        if events is None:
            numbered = enumerate(_events(reply, recorded))
            events = [msgspec.json.encode({**event, "sequence_number": number}).decode() for number, event in numbered]
        return [_write(event) for event in events]


class OpenAIApis(ResponsesUpstream):
    """OpenAI's own server, with both of its APIs. Some models refuse over chat completions what they take over
    Responses."""

    kind = "openai"
    other_paths = ("/v1/chat/completions",)

    def __init__(self) -> None:
        super().__init__()
        self.default_chat_reply = Reply()
        # Models that it has over one API alone.
        self.responses_only: set[str] = set()
        # An older address of Azure's.
        self.has_responses = True

    @property
    def paths_asked(self) -> list[str]:
        return [request.path.removeprefix("/v1/") for request in self.requests]

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        if recorded.path == self.path:
            if not self.has_responses:
                return Reply(status=404, body='{"error":{"code":"404","message":"Resource not found"}}')
            return super().refusal_of(recorded)
        if recorded.json["model"] in self.responses_only:
            message = "This model is only supported in v1/responses and not in v1/chat/completions."
            return refusal(message, "model", None, status=404)
        return chat_refusal_of(recorded.json)

    def reply_to(self, recorded: Recorded) -> Reply:
        return super().reply_to(recorded) if recorded.path == self.path else self.default_chat_reply

    def write_whole(self, reply: Reply, recorded: Recorded) -> dict[str, Any]:
        is_chat = not isinstance(reply, ResponsesReply)
        return Upstream.write_whole(self, reply, recorded) if is_chat else super().write_whole(reply, recorded)

    def write_stream(self, reply: Reply, recorded: Recorded) -> list[bytes]:
        is_chat = not isinstance(reply, ResponsesReply)
        return Upstream.write_stream(self, reply, recorded) if is_chat else super().write_stream(reply, recorded)


def _write(event: str) -> bytes:
    name = msgspec.json.decode(event)["type"]
    return b"event: %b\ndata: %b\n\n" % (name.encode(), event.encode())


def _response(reply: ResponsesReply, recorded: Recorded, output: list[dict[str, Any]]) -> dict[str, Any]:
    reason = reply.finish_reason if reply.finish_reason in _INCOMPLETE else None
    request = recorded.json
    return {
        "id": "resp_played",
        "object": "response",
        "created_at": 1_800_000_000,
        "status": "incomplete" if reason else reply.finish_reason,
        "model": request["model"],
        "output": output,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "temperature": 1.0,
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools", []),
        "top_p": 1.0,
        "usage": reply.usage,
    }


def _events(reply: ResponsesReply, recorded: Recorded) -> list[dict[str, Any]]:
    begun = {**_response(reply, recorded, []), "status": "in_progress", "usage": None, "incomplete_details": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(reply.items):
        events += _item_events(reply, index, item)
    if reply.finish_reason is not None:
        whole = _response(reply, recorded, reply.items)
        events.append({"type": f"response.{whole['status']}", "response": whole})
    return events


def _item_events(reply: ResponsesReply, index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    kind, of_item = item["type"], {"item_id": item["id"], "output_index": index}
    begun = {**item, "status": "in_progress"}
    events: list[dict[str, Any]] = []
    if kind == "message":
        begun["content"] = []
        for place, part in enumerate(item["content"]):
            events += _part_events(reply, {**of_item, "content_index": place}, part)
    elif kind == "custom_tool_call":
        begun["input"] = ""
        named = {"type": "response.custom_tool_call_input.delta", **of_item, "obfuscation": "x7"}
        events += [{**named, "delta": piece} for piece in (item["input"][:3], item["input"][3:])]
        events.append({"type": "response.custom_tool_call_input.done", **of_item, "input": item["input"]})
    elif kind == "function_call":
        begun["arguments"] = ""
        pieces = next((pieces for name, pieces in reply.calls if name == item["name"]), [item["arguments"]])
        named = {"type": "response.function_call_arguments.delta", **of_item, "obfuscation": "x7"}
        events += [{**named, "delta": piece} for piece in pieces]
        done = {"type": "response.function_call_arguments.done", **of_item, "arguments": item["arguments"]}
        events.append({**done, "name": item["name"]})
    else:
        # What is encrypted may be incomplete at the beginning.
        begun |= {"summary": [], "encrypted_content": "gAAA"}
        for place, part in enumerate(item["summary"]):
            events += _summary_events({**of_item, "summary_index": place}, part)
    added = {"type": "response.output_item.added", "output_index": index, "item": begun}
    ended = {"type": "response.output_item.done", "output_index": index, "item": item}
    return [added, *([] if reply.ends_only else events), ended]


def _part_events(reply: ResponsesReply, place: dict[str, Any], part: dict[str, Any]) -> list[dict[str, Any]]:
    kind = "output_text" if part["type"] == "output_text" else "refusal"
    field = "text" if kind == "output_text" else "refusal"
    told = (reply.contents * reply.repeat) if kind == "output_text" else reply.refusals
    pieces = told if "".join(told) == part[field] else [part[field][:5], part[field][5:]]
    begun = {**part, field: ""}
    return [
        {"type": "response.content_part.added", **place, "part": begun},
        *(
            {"type": f"response.{kind}.delta", **place, "delta": piece, "obfuscation": "x7", "logprobs": []}
            for piece in pieces
        ),
        {"type": f"response.{kind}.done", **place, field: part[field], "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
    ]


def _summary_events(place: dict[str, Any], part: dict[str, Any]) -> list[dict[str, Any]]:
    named, text = "response.reasoning_summary", part["text"]
    return [
        {"type": f"{named}_part.added", **place, "part": {**part, "text": ""}},
        *({"type": f"{named}_text.delta", **place, "delta": piece} for piece in (text[:4], text[4:])),
        {"type": f"{named}_text.done", **place, "text": text},
        {"type": f"{named}_part.done", **place, "part": part},
    ]
