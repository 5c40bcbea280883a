"""Reads the client's parameters, for providers with another format than the client's."""

import msgspec
from msgspec import Raw

from services.chassis.errors import LegatoError, Reason

_NOTHING = (Raw(), Raw(b"null"))


class _JsonSchema(msgspec.Struct):
    schema: Raw = Raw()


class ResponseFormat(msgspec.Struct):
    type: str = "text"
    json_schema: _JsonSchema | None = None

    @property
    def schema(self) -> Raw | None:
        """The JSON schema of the format, if it has one."""
        found = self.json_schema.schema if self.json_schema is not None else Raw()
        return None if found in _NOTHING else found


class Parameters(msgspec.Struct):
    """All parameters that the edge accepts; None if the client did not send one."""

    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_format: ResponseFormat = msgspec.field(default_factory=ResponseFormat)
    parallel_tool_calls: bool | None = None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


_parameters = msgspec.json.Decoder(Parameters)


def read_parameters(parameters_json: bytes) -> Parameters:
    try:
        return _parameters.decode(parameters_json) if parameters_json else Parameters()
    except (msgspec.DecodeError, RecursionError):
        # The edge rejects these, but others may call a router too.
        raise LegatoError(Reason.REQUEST_INVALID, "The parameters could not be read.") from None
