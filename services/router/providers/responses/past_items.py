"""Writes the messages of a chat as the items of the Responses API: what was said, called and answered, and between them
what the model thought.

Items have no ids of their own. The API looks for those that have one among the items that it has stored, and nothing is
stored; some of Azure's servers want the ids of reasoning all the same.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

import msgspec
from msgspec import Raw

from services.router.providers.abilities import Abilities
from services.router.providers.errors.lessons import PHASE
from services.router.providers.openai.custom_tools import input_of
from services.router.providers.translation.conversion import write_list
from services.router.providers.translation.turns import plain_id
from services.router.schema.messages import ABSENT, Message, Messages, decode_string, encode_string, join_strings
from services.router.schema.thoughts import Carried, ResponsesReasoning

_EMPTY: Final = encode_string("")
_NO_THOUGHTS: Final[Mapping[int, Carried]] = {}
_objects = msgspec.json.Decoder(dict[str, Raw])

Item = Mapping[str, object]


def write_items(
    messages: Messages, abilities: Abilities, custom_tools: Collection[str] = (), *, has_phases: bool
) -> Raw:
    """Returns the list of items. Calls of `custom_tools` are custom ones. `has_phases` if messages of the model may say
    whether they are an answer."""
    phases = ("commentary", "final_answer") if has_phases and PHASE not in abilities.refused else ("", "")
    return write_list(_items(messages, abilities, phases, custom_tools))


def _items(
    messages: Messages, abilities: Abilities, phases: Sequence[str], custom_tools: Collection[str]
) -> Iterator[Item]:
    custom_ids: set[str] = set()
    latest = max(messages.thoughts, default=0)
    for index, message in enumerate(messages.complete):
        if message.role == "assistant":
            is_back = abilities.past_reasoning != "latest" or index == latest
            thoughts = messages.thoughts.get(index, _NO_THOUGHTS) if is_back else _NO_THOUGHTS
            items = _model_items(message, thoughts, phases, with_ids=abilities.past_reasoning == "with_ids")
            yield from _with_custom_calls(items, custom_tools, custom_ids) if custom_tools else items
        elif message.role == "tool":
            call_id = plain_id(message.tool_call_id or "")
            kind = "custom_tool_call_output" if call_id in custom_ids else "function_call_output"
            yield {"type": kind, "call_id": call_id, "output": join_strings(message.texts)}
        else:
            yield {"role": message.role, "content": _content(message)}


def _with_custom_calls(items: Iterable[Item], names: Collection[str], ids: set[str]) -> Iterator[Item]:
    """Yields the items, with calls of these tools as such, and adds the ids of those."""
    for item in items:
        if item.get("type") != "function_call" or item["name"] not in names:
            yield item
            continue
        ids.add(str(item["call_id"]))
        given = input_of(cast(Raw, item["arguments"]))
        yield {"type": "custom_tool_call", "call_id": item["call_id"], "name": item["name"], "input": given}


def _content(message: Message) -> object:
    texts = message.texts
    if len(texts) > 1:
        return [{"type": "input_text", "text": text} for text in texts]
    return texts[0] if texts else _EMPTY


def _model_items(
    message: Message, thoughts: Mapping[int, Carried], phases: Sequence[str], *, with_ids: bool
) -> Iterator[Item]:
    """Yields what the model thought, said and called. Reasoning is refused where nothing follows it."""
    refusal = [] if message.refusal is ABSENT else [message.refusal]
    said, phase = join_strings([*message.texts, *refusal]), phases[not message.calls]
    # What belongs to the message, and what came before its first call.
    first = [thought for place, carried in sorted(thoughts.items()) if place <= 0 for thought in carried.thoughts]
    pending: list[Item] = []
    for item in _said_and_thought(said, [thought for thought in first if isinstance(thought, ResponsesReasoning)]):
        if isinstance(item, ResponsesReasoning):
            pending.append(_reasoning(item, with_ids=with_ids))
            continue
        yield from pending
        pending = []
        spoken = {"role": "assistant", "content": item}
        yield spoken | {"phase": phase} if phase else spoken
    for place, call in enumerate(message.calls):
        if place and place in thoughts:
            pending += _reasonings(thoughts[place].thoughts, with_ids=with_ids)
        yield from pending
        pending = []
        function = call.function
        yield {
            "type": "function_call",
            "call_id": plain_id(call.id or ""),
            "name": (function.name if function is not None else None) or "",
            "arguments": _EMPTY if function is None or function.arguments is ABSENT else function.arguments,
        }


def _said_and_thought(said: Raw, thoughts: Sequence[ResponsesReasoning]) -> Iterator[Raw | ResponsesReasoning]:
    """Yields a text, divided where the model thought in its middle, with the thoughts."""
    if not thoughts or said == _EMPTY:
        yield from thoughts
        yield from (each for each in (said,) if each != _EMPTY)
        return
    text, begin = decode_string(said), 0
    for thought in thoughts:
        if text[begin : thought.at]:
            yield encode_string(text[begin : thought.at])
            begin = thought.at
        yield thought
    if text[begin:]:
        yield encode_string(text[begin:])


def _reasonings(thoughts: Iterable[object], *, with_ids: bool) -> Iterator[Item]:
    for thought in thoughts:
        if isinstance(thought, ResponsesReasoning):
            yield _reasoning(thought, with_ids=with_ids)


def _reasoning(thought: ResponsesReasoning, *, with_ids: bool) -> Item:
    fields = _objects.decode(thought.item_json)
    if not with_ids:
        fields.pop("id", None)
    return fields
