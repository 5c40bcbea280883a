"""OpenAI's models that think before they call tools, over the Responses API: they check that the thoughts come back."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.upstreams.openai import Recorded, Reply
from tests.support.upstreams.responses import (
    OpenAIApis,
    ResponsesReply,
    ResponsesUpstream,
    call_item,
    message_item,
    reasoning_item,
    text_part,
)
from tests.support.upstreams.thinking import DONE, FUNCTION, Loop, thought_of, turns_of


class ThinkingResponses(ResponsesUpstream):
    """Thinks before its first call, in every third turn says something before that, and in every second one thinks
    between its calls, too."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Loop()

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        if recorded.path == self.path:
            turns = _turns(recorded.json["input"])
            self.loop.asked = len(turns)
            self.loop.returned = sum(self._is_returned(turn, items) for turn, items in enumerate(turns))
        return super().refusal_of(recorded)

    def _is_returned(self, turn: int, items: Sequence[Mapping[str, Any]]) -> bool:
        """Returns whether what was thought stands where it was thought."""
        said = [(item["type"], item.get("encrypted_content")) for item in _without_texts(items)]
        return said == [(item["type"], item.get("encrypted_content")) for item in _without_texts(self._items(turn))]

    def _items(self, turn: int, *, is_summarised: bool = False) -> list[dict[str, Any]]:
        thought = thought_of(turn, self.loop.size)
        items = [reasoning_item(f"rs_{turn}", thought, [thought] if is_summarised else None, self.key)]
        if turn % 3 == 0:
            items.append(message_item(f"msg_{turn}", text_part("Let me look."), phase="commentary"))
        for place in range(self.loop.calls_at_once):
            if place and turn % 2:
                items.append(reasoning_item(f"rs_{turn}_{place}", f"{thought[:20]} Go on {place}.", key=self.key))
            items.append(call_item(f"call_{turn:02}_{place}", FUNCTION, json.dumps({"city": f"{turn}.{place}"})))
        return items

    def reply_to(self, recorded: Recorded) -> Reply:
        if recorded.path != self.path or self.replies:
            return super().reply_to(recorded)
        turn = len(_turns(recorded.json["input"]))
        if turn >= self.loop.loops:
            return ResponsesReply(contents=[DONE])
        usage = {
            "input_tokens": 900,
            "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 4},
            "output_tokens": 70,
            "output_tokens_details": {"reasoning_tokens": 50},
            "total_tokens": 970,
        }
        is_summarised = "summary" in recorded.json.get("reasoning", {})
        return ResponsesReply(contents=[], said_items=self._items(turn, is_summarised=is_summarised), usage=usage)


class ThinkingOpenAI(ThinkingResponses, OpenAIApis):
    """The same model on OpenAI's own server, where chat completions refuse it tools."""


def _turns(items: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Returns the items of each turn of the model that has calls."""
    turns: list[list[Mapping[str, Any]]] = [[]]
    for item in items:
        is_models = item.get("type") in ("reasoning", "function_call") or item.get("role") == "assistant"
        if is_models:
            turns[-1].append(item)
        elif turns[-1]:
            turns.append([])
    return [turn for turn in turns if turns_of(turn, lambda item: item.get("type") == "function_call")]


def _without_texts(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [item for item in items if item.get("type") in ("reasoning", "function_call")]
