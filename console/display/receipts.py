"""Receipts of requests: what they say in words, and their arithmetic, computed again."""

from dataclasses import dataclass
from typing import Final

from console.display.language import N_, _
from legato_protos.metering.v1 import metering_pb2, statements_pb2
from legato_protos.type.v1 import chat_api_pb2
from services.rules.cost import MILLION

ENDS: Final = {
    metering_pb2.END_COMPLETE: (N_("Complete"), "good", N_("The model finished its answer.")),
    metering_pb2.END_CLIENT_GONE: (
        N_("Client left"),
        "warn",
        N_("The client closed the connection. Only what was delivered until then is charged."),
    ),
    metering_pb2.END_UPSTREAM_CUT: (
        N_("Broken off"),
        "warn",
        N_("The model's server broke off. Only what was delivered until then is charged."),
    ),
    metering_pb2.END_CREDIT_SPENT: (N_("Credit used up"), "warn", N_("The credit was used up during the answer.")),
    metering_pb2.END_REFUSED: (N_("Refused"), "", N_("The request was refused before anything was delivered.")),
    metering_pb2.END_CRASHED: (
        N_("Interrupted"),
        "warn",
        N_("A process of the service ended during the answer. What was recorded as delivered is charged."),
    ),
    metering_pb2.END_KEY_REFUSED: (
        N_("Key revoked"),
        "warn",
        N_("The key was revoked, or expired, during the answer. Only what was delivered until then is charged."),
    ),
}
BASES: Final = {
    metering_pb2.BASIS_PROVIDER: N_("Counted by the model's provider"),
    metering_pb2.BASIS_COUNTED: N_("Counted by this service, token by token"),
    metering_pb2.BASIS_JOURNAL: N_("From the edge's journal, written before each piece was delivered"),
    metering_pb2.BASIS_CHECKPOINT: N_("From the last report of the running answer"),
}
APIS: Final = {
    chat_api_pb2.CHAT_API_CHAT: N_("Chat completions"),
    chat_api_pb2.CHAT_API_MESSAGES: N_("Messages"),
    chat_api_pb2.CHAT_API_RESPONSES: N_("Responses"),
    chat_api_pb2.CHAT_API_GRPC: N_("gRPC"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One kind of tokens, times its price. The product is in millionths of a nano-dollar."""

    name: str
    tokens: int
    nanos_per_million: int
    # The column of usage whose parts without a price of their own are told with it.
    whole: str = ""

    @property
    def product(self) -> int:
        return self.tokens * self.nanos_per_million


@dataclass(frozen=True, slots=True)
class Arithmetic:
    lines: tuple[Line, ...]
    # What the receipt says.
    cost_nanos: int

    @property
    def product(self) -> int:
        return sum(line.product for line in self.lines)

    @property
    def nanos(self) -> int:
        """The cost: rounded up once, to the next nano-dollar."""
        return -(-self.product // MILLION)

    @property
    def agrees(self) -> bool:
        return self.nanos == self.cost_nanos


def arithmetic_of(receipt: statements_pb2.RequestReceipt) -> Arithmetic | None:
    """Computes a cost again, from tokens and prices; None where a request never had a price, or still runs."""
    if not receipt.HasField("price") or receipt.state == metering_pb2.REQUEST_STATE_RUNNING:
        return None
    usage, price = receipt.usage, receipt.price
    return Arithmetic(
        (
            Line(
                N_("Prompt"), usage.prompt_tokens - usage.cached_tokens, price.input_nanos_per_million, "prompt_tokens"
            ),
            Line(N_("Prompt, cached"), usage.cached_tokens, price.cached_input_nanos_per_million),
            Line(N_("Answer"), usage.completion_tokens, price.output_nanos_per_million, "completion_tokens"),
        ),
        receipt.cost_nanos,
    )


def end_of(receipt: statements_pb2.RequestReceipt) -> tuple[str, str, str]:
    """Says how a request ended: a word, its kind, and a sentence."""
    if receipt.state == metering_pb2.REQUEST_STATE_RUNNING:
        return _("Running"), "", _("The answer is being delivered. Credit is held for it.")
    word, kind, sentence = ENDS.get(receipt.end, (N_("Ended"), "", N_("The request has ended.")))
    return _(word), kind, _(sentence)
