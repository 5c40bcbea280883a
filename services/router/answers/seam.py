"""The place where one model's answer was cut and another goes on: nothing is repeated there.

A prompt must not end with blanks, so the blanks at the end of the text so far are not in it, and a model mostly begins
with them. Some servers also repeat what they were given.
"""

from services.router.answers.relay import Relay
from services.router.providers.base import Piece, ProviderUsage


class Seam:
    """Joins the pieces of one call to the answer so far. It is the sink of the call; pieces that it does not take are
    joined by the chat's task."""

    def __init__(self, relay: Relay, given: str) -> None:
        """`given` is the answer so far."""
        self.prefix = given.rstrip()
        self._relay = relay
        self._blanks = given[len(self.prefix) :]
        # What the model's server is to repeat, and how much of it has come again.
        self._repeated = ""
        self._repeated_characters = 0
        # What the provider reports of this call alone.
        self.usage: ProviderUsage | None = None

    def expect_repetition(self) -> None:
        """Is called before any piece is joined, if the model's server repeats what it was given."""
        self._repeated = self.prefix

    def take(self, piece: Piece) -> bool:
        return not self._is_open and self._relay.take(piece)

    def take_read(self, read: bytes) -> int:
        return 0 if self._is_open else self._relay.take_read(read)

    def join(self, piece: Piece) -> Piece:
        """Leaves what is new, and takes the usage: of the whole answer, no provider knows it."""
        if self._is_open and not piece.refuses:
            text = self._new_part("".join(piece.contents), is_last=piece.last)
            piece.contents = [text] if text else []
        if piece.last:
            self.usage = piece.take_usage()
        return piece

    @property
    def _is_open(self) -> bool:
        """Returns whether what comes next may repeat something."""
        return bool(self._repeated or self._blanks)

    def _new_part(self, text: str, *, is_last: bool) -> str:
        if self._repeated:
            at = self._repeated_characters
            if not is_last and len(text) < len(self._repeated) - at and self._repeated.startswith(text, at):
                self._repeated_characters += len(text)
                return ""
            text = (self._repeated[:at] + text).removeprefix(self._repeated)
            self._repeated = ""
        if text:
            blanks = text[: len(text) - len(text.lstrip())]
            at = next((at for at in range(len(blanks)) if not self._blanks.startswith(blanks[at], at)), len(blanks))
            text = text[at:]
            # Once there is something new, nothing of it is repeated.
            self._blanks = "" if text else self._blanks[at:]
        return text
