"""The facts of a request that are known while it runs, beside its counts in the journal: a crash loses them."""

from collections.abc import Sequence

from msgspec import Struct

from edge.billing.settlements import ChatDetails
from legato_protos.router.v1.router_pb2 import Started
from legato_protos.type.v1.model_call_pb2 import ModelCall


class RunningRequest(Struct):
    """Belongs to a chat, which alone changes it."""

    key_id: str
    is_streamed: bool
    # Times are by the clock of this process. Set once credit is held.
    arrived_at_s: float | None = None
    first_piece_at_s: float | None = None
    # Prompt tokens that a provider has accepted, as far as the router has reported it.
    accepted_prompt_tokens: int = 0
    # The model that has begun to answer, and all calls to models once the answer has finished.
    started: Started | None = None
    calls: Sequence[ModelCall] = ()

    def details(self, now_s: float) -> ChatDetails:
        """Describes the request for its settlement. An answer that is not streamed has no first token."""
        arrived_at_s, first_piece_at_s = self.arrived_at_s, self.first_piece_at_s
        duration_ms = first_token_ms = None
        if arrived_at_s is not None:
            duration_ms = round((now_s - arrived_at_s) * 1000)
            if self.is_streamed and first_piece_at_s is not None:
                first_token_ms = round((first_piece_at_s - arrived_at_s) * 1000)
        return ChatDetails(
            key_id=self.key_id,
            started=self.started,
            calls=self.calls,
            first_token_ms=first_token_ms,
            duration_ms=duration_ms,
        )
