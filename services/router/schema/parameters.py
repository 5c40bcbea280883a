"""The parameters of a request, described and parsed once."""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

_NOTHING: Final = (Raw(), Raw(b"null"))

# Parameters that steer an answer: a model that does not take one can answer without it.
RARELY_TAKEN: Final = frozenset({"logit_bias", "reasoning_effort", "verbosity"})
# Those that only the servers of open models have.
OPEN_MODELS: Final = frozenset({"top_k", "min_p", "repetition_penalty", "chat_template_kwargs"})
STEERING: Final = RARELY_TAKEN | {"temperature", "top_p", "seed", "presence_penalty", "frequency_penalty"}


# How many tokens of thinking a word stands for, where a model takes a number of them, and the other way round.
EFFORT_TOKENS: Final = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24_576}


class _JsonSchema(Struct):
    schema: Raw = Raw()


class AnswerFormat(Struct):
    type: str = "text"
    json_schema: _JsonSchema | None = None
    # llama.cpp also accepts the schema here.
    schema: Raw = Raw()

    @property
    def answer_schema(self) -> Raw | None:
        """The JSON schema of the answer, if it has one."""
        found = self.json_schema.schema if self.json_schema is not None else Raw()
        return None if found in _NOTHING else found


class _Reasoning(Struct):
    """The amount of thinking in OpenRouter's words."""

    max_tokens: int | None = None


class KnownParameters(Struct):
    """The parameters that are translated for some provider; None if the client did not send one."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    reasoning_effort: str | None = None
    reasoning: _Reasoning | None = None
    response_format: AnswerFormat = msgspec.field(default_factory=AnswerFormat)
    parallel_tool_calls: bool | None = None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def wanted_effort(self) -> str | None:
        """Returns the amount of thinking: the word that the client sent, or the one for its number of tokens."""
        if self.reasoning_effort is not None or self.reasoning is None or self.reasoning.max_tokens is None:
            return self.reasoning_effort
        efforts = (effort for effort, most in EFFORT_TOKENS.items() if self.reasoning.max_tokens <= most)
        return next(efforts, "xhigh")


_fields = msgspec.json.Decoder(dict[str, Raw])
_known_parameters = msgspec.json.Decoder(KnownParameters)


_Decoded = TypeVar("_Decoded")


def decoded(decoder: msgspec.json.Decoder[_Decoded], given: bytes, what: str, param: str | None = None) -> _Decoded:
    """Decodes a part of a request. The edge rejects what cannot be read, but others may call a router too."""
    try:
        return decoder.decode(given)
    except (msgspec.DecodeError, RecursionError):
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("part_unreadable", what=what), param=param) from None


class Parameters:
    """The parameters of one chat as JSON, which OpenAI-compatible providers send on unchanged."""

    def __init__(self, json: bytes = b"") -> None:
        """`json` is empty if there are none."""
        self.json = json
        # All parameters, whether we know them or not.
        self.fields: dict[str, Raw] = decoded(_fields, json, "The parameters") if json else {}

    @cached_property
    def known(self) -> KnownParameters:
        return decoded(_known_parameters, self.json or b"{}", "The parameters")

    def without(self, names: Collection[str]) -> "Parameters":
        """Returns the other parameters; the same object if it has none of these."""
        kept = {name: value for name, value in self.fields.items() if name not in names}
        if len(kept) == len(self.fields):
            return self
        return Parameters(msgspec.json.encode(kept) if kept else b"")

    def with_fields(self, added: Mapping[str, Raw]) -> "Parameters":
        """Returns these and others; the same object if there are no others."""
        return Parameters(msgspec.json.encode({**self.fields, **added})) if added else self

    @property
    def wants_one_call(self) -> bool:
        """Returns whether the model may call only one function at a time."""
        return "parallel_tool_calls" in self.fields and self.known.parallel_tool_calls is False


NO_PARAMETERS: Final = Parameters()
