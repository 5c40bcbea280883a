"""One chat's part in a round: how its provider answers, and how its client listens."""

from dataclasses import dataclass

# One token by the router's count, however many stand in a row.
WORD = " rain"


@dataclass(frozen=True)
class Part:
    name: str
    model: str = "mezzo"
    streamed: bool = True
    # The answer comes in so many pieces, each of so many tokens.
    pieces: int = 4
    piece_tokens: int = 1
    # Before each piece.
    pause_s: float = 0.0
    # The client goes when it has so many pieces; 0: when the provider was asked.
    leaves_after: int | None = None
    # The provider breaks the connection after so many pieces.
    cut_after: int | None = None
    status: int = 200
    # A prompt with more tokens than its size suggests: the hold must grow before the provider is asked.
    dense_words: int = 0

    @property
    def tokens(self) -> int:
        return self.pieces * self.piece_tokens


STREAM = Part("stream", pieces=6)
SHORT = Part("short stream", pieces=1)
WHOLE = Part("whole", streamed=False)
# The credit does not suffice for the longest answer of this class, so the router has it streamed and the edge folds it.
FOLDED = Part("folded", model="fortissimo", streamed=False)
LEAVES = Part("client leaves", leaves_after=3)
LEAVES_FIRST = Part("client leaves after the first piece", leaves_after=1)
LEAVES_EARLY = Part("client leaves before the first piece", leaves_after=0)
LEAVES_WHOLE = Part("client leaves before a whole answer", streamed=False, model="fortissimo", leaves_after=0)
CUT = Part("provider cuts", cut_after=2)
CUT_EARLY = Part("provider cuts before the first piece", cut_after=0)
# A status that is not repeated by the router: no provider is asked twice.
REFUSED = Part("provider refuses", status=401)
DENSE = Part("dense prompt", dense_words=400)
OUTGROWS = Part("answer outgrows its hold", pieces=6, piece_tokens=900)
STEADY = Part("steady stream", pieces=8, pause_s=0.08)
SLOW = Part("slow stream", pieces=12, pause_s=0.12)
