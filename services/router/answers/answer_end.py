"""The end of an answer, as far as it was relayed."""

from msgspec import Struct

from legato_protos.router.v1.router_pb2 import Finished
from services.router.providers.base import ProviderUsage


class AnswerEnd(Struct, frozen=True):
    # None: the answer was not complete.
    finished: Finished | None = None
    # What the provider reported, as far as it is plausible.
    believed: ProviderUsage | None = None
    # Our own count of the answer, if it can be compared with the model's.
    comparable_tokens: int | None = None
    # The answer was cut because it exceeded `max_tokens`.
    is_beyond_limit: bool = False


NOT_RELAYED = AnswerEnd()
