"""Normalizes tool calls from every provider's dialect.

OpenAI's clients merge deltas by `index` and concatenate repeated fields. So every call gets its own integer index, its
id and name once, on its first delta, and its arguments as pieces of a string, which is JSON even if the provider sent
none. Clients also consider a call complete when the next one begins, so the next call is held back for a while if this
one has no arguments yet.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from legato_protos.router.v1.router_pb2 import ToolCallDelta
from services.router.reasoning.sealed_ids import ID_PREFIX
from services.router.schema.thoughts import Thought
from services.router.schema.tools import ToolCallFragment

# Returns the id for the client, of a canonical one, the vendor's own (empty: it is not unique) and the thoughts.
SealId = Callable[[str, str, Sequence[Thought]], str]

_NO_ARGUMENTS = "{}"
# Deltas held back behind a call without arguments; bounded so that a long call still streams.
DELTAS_THAT_WAIT_MOST = 32
# Arguments buffered for a call without a name yet. A call that exceeds this is broken.
MOST_CHARACTERS_WITHOUT_NAME = 1024 * 1024


@dataclass(slots=True, repr=False)
class _Call:
    index: int
    provider_index: int | None
    provider_id: str | None
    # Empty until the provider sends it. The call is announced only then; its arguments are buffered until that.
    name: str = ""
    waiting_arguments: list[str] = field(default_factory=list)
    waiting_characters: int = 0
    has_arguments: bool = False
    # What the model thought before it.
    thoughts: Sequence[Thought] = ()

    @property
    def is_broken(self) -> bool:
        return self.waiting_characters > MOST_CHARACTERS_WITHOUT_NAME

    def wait(self, arguments: str) -> None:
        self.waiting_characters += len(arguments)
        if self.is_broken:
            self.waiting_arguments.clear()
        elif arguments:
            self.waiting_arguments.append(arguments)


class ToolCalls:
    """The tool calls of one answer."""

    def __init__(self, *, only_one: bool = False) -> None:
        """`only_one` keeps just the first call, for a client that disabled parallel calls: not every provider honours
        that setting."""
        self._only_one = only_one
        # Has an id carry what the model thought; None if none does.
        self._seal_id: SealId | None = None
        self._calls: list[_Call] = []
        # Lookups by the provider's identifiers: last call per index, first call per id, first per index and id.
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[tuple[int | None, str], _Call] = {}
        self._ids: set[str] = set()
        self._last: _Call | None = None
        # Calls up to `_turn` may be sent; deltas of later ones wait. `_first_bare` is the first call without arguments.
        self._turn = 0
        self._first_bare = 0
        self._waiting: list[ToolCallDelta] = []
        # At least the characters that the next fragment may release: all that were ever held back.
        self.characters_held_back = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def all_named(self) -> bool:
        """Returns whether every call has a function name: an answer that ends without one is broken."""
        return all(call.name and not call.is_broken for call in self._calls)

    def seal_ids(self, seal_id: SealId) -> None:
        """Has the ids of calls carry what the model thought before them."""
        self._seal_id = seal_id

    def add_fragment(self, fragment: ToolCallFragment) -> ToolCallDelta | None:
        """Returns the delta to send, if the fragment adds anything."""
        arguments = fragment.arguments or ""
        if not (arguments or fragment.name or fragment.call_id):
            return None
        call = self._find(fragment)
        if call is None:
            call = self._begin(fragment)
        self._last = call
        if fragment.thoughts and not call.name:
            call.thoughts = (*call.thoughts, *fragment.thoughts)
        call.has_arguments = call.has_arguments or bool(arguments)
        if call.index and self._only_one:
            call.name = call.name or fragment.name or ""
            return None
        if call.name:
            return ToolCallDelta(index=call.index, arguments=arguments) if arguments else None
        if fragment.call_id and not call.provider_id:
            call.provider_id = fragment.call_id
            self._remember_id(call, fragment.call_id)
        if not fragment.name or call.is_broken:
            call.wait(arguments)
            self.characters_held_back += len(arguments)
            return None
        call.name = fragment.name
        return ToolCallDelta(
            index=call.index,
            id=self._id_of(call),
            name=call.name,
            arguments="".join((*call.waiting_arguments, arguments)),
        )

    def take_turns(self, deltas: list[ToolCallDelta]) -> list[ToolCallDelta]:
        """Returns the deltas that may be sent now, from these and from those held back."""
        while self._first_bare < len(self._calls) and self._calls[self._first_bare].has_arguments:
            self._first_bare += 1
        turn = self._first_bare
        if len(self._waiting) >= DELTAS_THAT_WAIT_MOST:
            turn = len(self._calls)
        if turn > self._turn:
            self._turn = turn
            deltas, self._waiting = _in_order(self._waiting + deltas), []
        held_back = [delta for delta in deltas if delta.index > self._turn]
        self._waiting += held_back
        self.characters_held_back += sum(len(delta.name) + len(delta.arguments) for delta in held_back)
        return [delta for delta in deltas if delta.index <= self._turn]

    def finish(self, *, is_cut: bool) -> list[ToolCallDelta]:
        """Returns the remaining deltas at the end of the answer. `is_cut` means that the last call may be truncated, so
        it must not get empty arguments."""
        sent = self._calls[:1] if self._only_one else self._calls
        bare = [call for call in sent if call.name and not call.has_arguments and not (is_cut and call is self._last)]
        return _in_order(self._waiting + [ToolCallDelta(index=call.index, arguments=_NO_ARGUMENTS) for call in bare])

    def _find(self, fragment: ToolCallFragment) -> _Call | None:
        """Finds the call by index unless id or name contradict it; without an index by id, else the last call."""
        nearest = self._last if fragment.index is None else self._by_index.get(fragment.index)
        if fragment.call_id:
            nearest = self._by_id.get((fragment.index, fragment.call_id), nearest)
        if nearest is None or _begins_another(nearest, fragment):
            return None
        return nearest

    def _begin(self, fragment: ToolCallFragment) -> _Call:
        call = _Call(len(self._calls), fragment.index, fragment.call_id or None)
        self._calls.append(call)
        if fragment.index is not None:
            self._by_index[fragment.index] = call
        if fragment.call_id:
            self._remember_id(call, fragment.call_id)
        return call

    def _remember_id(self, call: _Call, call_id: str) -> None:
        for key in {(None, call_id), (call.provider_index, call_id)}:
            known = self._by_id.get(key)
            if known is None or call.index < known.index:
                self._by_id[key] = call

    def _id_of(self, call: _Call) -> str:
        call_id = self._canonical_id(call.provider_id)
        if not call.thoughts or self._seal_id is None:
            return call_id
        own_id = call.provider_id or ""
        is_unique = call_id in (own_id, ID_PREFIX + own_id)
        return self._seal_id(call_id, own_id if is_unique else "", call.thoughts)

    def _canonical_id(self, provider_id: str | None) -> str:
        call_id = provider_id or ""
        if not call_id.startswith(ID_PREFIX):
            call_id = ID_PREFIX + call_id
        # A missing, "null" or repeated id identifies no call and is replaced.
        if provider_id in (None, "", "null") or call_id in self._ids:
            call_id = ID_PREFIX + secrets.token_hex(12)
        self._ids.add(call_id)
        return call_id


def _begins_another(call: _Call, fragment: ToolCallFragment) -> bool:
    if fragment.call_id and call.provider_id:
        if fragment.call_id != call.provider_id:
            return True
        return bool(fragment.name and call.name) and fragment.name != call.name
    # Without ids, a second name begins the next call.
    return bool(fragment.name and call.name)


def _in_order(deltas: list[ToolCallDelta]) -> list[ToolCallDelta]:
    """Sorts the deltas by call, stably."""
    return sorted(deltas, key=lambda delta: delta.index)
