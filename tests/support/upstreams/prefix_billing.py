"""Servers of each vendor that cache prompts by their beginnings, as the vendor documents it, and write a bill.

They count a token for every four bytes, so that the bill is easy to check. What they do not model is time: what is
cached stays.
"""

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream, blocks_of
from tests.support.upstreams.gemini import GeminiReply, GeminiUpstream
from tests.support.upstreams.openai import Recorded, Reply, Upstream

TOKEN_BYTES = 4
# Shorter prompts are not cached.
LEAST_TOKENS = 1024
# OpenAI caches whole portions of this many tokens.
PORTION_TOKENS = 128
# A request without a key goes to any of the servers, in turn; with one to always the same.
SERVERS = 5
# Anthropic looks for a prefix at the mark and at the blocks before it, this many together.
LOOKBACK_BLOCKS = 20

# In nano-dollars for a million tokens: a token of the second costs 12.5 nano-dollars.
PRICES = {
    "input": 1_000_000_000,
    "cached_input": 12_500_000,
    "cache_write": 1_250_000_000,
    "cache_write_1h": 2_000_000_000,
    "output": 5_000_000_000,
}


def tokens_of(text: bytes | str) -> int:
    return -(-len(text.encode() if isinstance(text, str) else text) // TOKEN_BYTES)


class Bill:
    """The tokens of all requests by what they cost."""

    def __init__(self) -> None:
        self.tokens = dict.fromkeys(PRICES, 0)
        # Of each request, in order.
        self.prompt_tokens: list[int] = []
        self.cached_tokens: list[int] = []

    def add(self, **tokens: int) -> None:
        for kind, count in tokens.items():
            assert count >= 0
            self.tokens[kind] += count
        self.prompt_tokens.append(sum(tokens.values()) - tokens["output"])
        self.cached_tokens.append(tokens["cached_input"])

    @property
    def millionths_of_nanos(self) -> dict[str, int]:
        return {kind: count * PRICES[kind] for kind, count in self.tokens.items()}


class BillingUpstream(Upstream):
    """OpenAI: each server of the vendor has a cache of its own, and the key of a request chooses the server."""

    def __init__(self) -> None:
        super().__init__()
        self.bill = Bill()
        self._prompts_by_server: dict[int, list[bytes]] = defaultdict(list)
        self._unkeyed = 0

    def reply_to(self, recorded: Recorded) -> Reply:
        reply, prompt = super().reply_to(recorded), b"".join(_completion_prompt(recorded.json))
        cached = _longest_cached(self._prompts_by_server[self._server_of(recorded.json)], prompt)
        cached -= cached % PORTION_TOKENS
        said = "".join(reply.contents) + str(reply.tool_calls or "")
        self.bill.add(input=tokens_of(prompt) - cached, cached_input=cached, output=tokens_of(said))
        usage = {
            "prompt_tokens": tokens_of(prompt),
            "completion_tokens": tokens_of(said),
            "total_tokens": tokens_of(prompt) + tokens_of(said),
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        return msgspec.structs.replace(reply, usage=usage)

    def _server_of(self, request: dict[str, Any]) -> int:
        key = request.get("prompt_cache_key")
        if key is None:
            self._unkeyed += 1
            return self._unkeyed % SERVERS
        return hashlib.sha256(key.encode()).digest()[0] % SERVERS


class BillingGemini(GeminiUpstream):
    """Google: the longest beginning that any request had is cached, without being asked."""

    def __init__(self) -> None:
        super().__init__()
        self.bill = Bill()
        self._prompts: list[bytes] = []

    def reply_to(self, recorded: Recorded) -> Reply:
        reply, request = super().reply_to(recorded), recorded.json
        assert isinstance(reply, GeminiReply)
        given = [request.get("tools"), request.get("systemInstruction")]
        given += [part for content in request["contents"] for part in (content["role"], *content["parts"])]
        prompt = b"".join(map(msgspec.json.encode, given))
        cached = _longest_cached(self._prompts, prompt)
        said_tokens = tokens_of(msgspec.json.encode(reply.parts))
        self.bill.add(input=tokens_of(prompt) - cached, cached_input=cached, output=said_tokens)
        usage = {
            "promptTokenCount": tokens_of(prompt),
            "cachedContentTokenCount": cached,
            "candidatesTokenCount": said_tokens,
        }
        return msgspec.structs.replace(reply, usage=usage)


class AnthropicCache:
    """What Anthropic has cached of the requests so far: a prefix up to each mark."""

    def __init__(self) -> None:
        self._prefixes: set[bytes] = set()

    def take(self, request: dict[str, Any]) -> dict[str, int]:
        """Returns the tokens of the prompt by what they cost, and caches what is marked."""
        digests, ends, marks = _read_blocks(request)
        read = 0
        for at in marks:
            found = (ends[i] for i in range(at, max(at - LOOKBACK_BLOCKS, -1), -1) if digests[i] in self._prefixes)
            read = max(read, next(found, 0))
        cacheable = {at: mark for at, mark in marks.items() if ends[at] >= LEAST_TOKENS}
        self._prefixes.update(digests[at] for at in cacheable)
        until = max((ends[at] for at in cacheable), default=read)
        until_1h = max((ends[at] for at, mark in cacheable.items() if mark.get("ttl") == "1h"), default=0)
        written_1h = max(until_1h - read, 0)
        written = max(until - read, 0)
        return {
            "input": ends[-1] - read - written,
            "cached_input": read,
            "cache_write": written - written_1h,
            "cache_write_1h": written_1h,
        }


class BillingAnthropic(AnthropicUpstream):
    """Anthropic: prefixes are cached up to marked blocks, and found again at or shortly before a mark."""

    def __init__(self) -> None:
        super().__init__()
        self.bill = Bill()
        self._cache = AnthropicCache()

    def reply_to(self, recorded: Recorded) -> Reply:
        reply = super().reply_to(recorded)
        assert isinstance(reply, AnthropicReply)
        counts = self._cache.take(recorded.json)
        said_tokens = tokens_of(msgspec.json.encode(reply.blocks))
        self.bill.add(output=said_tokens, **counts)
        usage = {
            "input_tokens": counts["input"],
            "cache_read_input_tokens": counts["cached_input"],
            "cache_creation_input_tokens": counts["cache_write"] + counts["cache_write_1h"],
            "cache_creation": {
                "ephemeral_5m_input_tokens": counts["cache_write"],
                "ephemeral_1h_input_tokens": counts["cache_write_1h"],
            },
            "output_tokens": said_tokens,
        }
        return msgspec.structs.replace(reply, usage=usage)


def _read_blocks(request: dict[str, Any]) -> tuple[list[bytes], list[int], dict[int, dict[str, str]]]:
    """Returns the digest of the prompt up to each block and its tokens so far, and the marks by block."""
    # What else Anthropic's cache of messages depends on.
    context = msgspec.json.encode([request.get("tool_choice"), request.get("thinking")])
    digest, tokens, is_message = hashlib.sha256(), 0, False
    digests, ends, marks = [], [], {}
    for at, block in enumerate(blocks_of(request)):
        if "role" in block and not is_message:
            is_message = True
            digest.update(context)
        mark = block.pop("cache_control", None)
        block_json = msgspec.json.encode(block)
        digest.update(block_json)
        tokens += tokens_of(block_json)
        digests.append(digest.digest())
        ends.append(tokens)
        if mark is not None:
            marks[at] = mark
    return digests, ends, marks


def _completion_prompt(request: dict[str, Any]) -> Iterator[bytes]:
    """Yields a prompt as a chat template would write it."""
    yield msgspec.json.encode(request.get("tools", []))
    for message in request["messages"]:
        yield f"<|{message['role']}|>{message.get('tool_call_id', '')}".encode()
        content = message["content"] or ""
        yield (content if isinstance(content, str) else "".join(part["text"] for part in content)).encode()
        if "tool_calls" in message:
            yield msgspec.json.encode(message["tool_calls"])


def _longest_cached(prompts: list[bytes], prompt: bytes) -> int:
    """Returns the tokens of the longest common beginning, and adds the prompt."""
    longest = max((_common_bytes(prompt, earlier) for earlier in prompts), default=0) // TOKEN_BYTES
    prompts.append(prompt)
    return longest if longest >= LEAST_TOKENS else 0


def _common_bytes(prompt: bytes, earlier: bytes) -> int:
    lengths = range(1, min(len(prompt), len(earlier)) + 1)
    return bisect_left(lengths, True, key=lambda length: prompt[:length] != earlier[:length])
