"""Seals what a model thinks in one answer: for its own next turn, and for the account that asked."""

from collections.abc import Sequence

from services.router.reasoning.restoring import TakenBack
from services.router.reasoning.sealed_ids import ReasoningSeals
from services.router.schema.thoughts import Thought


class AnswerSeals:
    def __init__(self, seals: ReasoningSeals, taken: TakenBack, account_id: str, *, is_shown: bool) -> None:
        """`taken` is what the model takes back; `is_shown` if the client asked to be told what it thinks."""
        self._seals = seals
        self._taken = taken
        self._account_id = account_id
        self.is_shown = is_shown

    def seal_id(self, call_id: str, own_id: str, thoughts: Sequence[Thought]) -> str:
        """Returns an id that carries the thoughts, of one for the client and the vendor's own; that is empty if it is
        not unique."""
        return self._seals.seal_id(call_id, own_id, self._taken.family_of(thoughts), thoughts, self._account_id)

    def seal_data(self, thoughts: Sequence[Thought]) -> str:
        """Returns all thoughts of the answer for a client that asked; empty if there are none, or too many."""
        if not (self.is_shown and thoughts):
            return ""
        return self._seals.seal_data(self._taken.family_of(thoughts), thoughts, self._account_id)
