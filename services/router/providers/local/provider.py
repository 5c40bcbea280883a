"""The bundled model, served by llama.cpp in its own process (see `services/router/local_model.py`)."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from services.chassis.sentence import Sentence
from services.router.providers.base import (
    CannotDo,
    Failure,
    Piece,
    ProviderCall,
    ProviderError,
    ProviderRoute,
    Timeouts,
)
from services.router.providers.local.grammar_bounds import CHOICES_MOST, TooMuch, check_schema
from services.router.providers.local.prompted_tools import Offer, read_answer, read_offer, render_as_plain_text
from services.router.providers.openai.provider import OpenAIProvider
from services.router.providers.translation.conversion import convert
from services.router.schema.parameters import AnswerFormat, Parameters
from services.router.schema.tools import NO_TOOLS

# Parameters that do not apply with tools, where the schema determines the answer.
_TOOL_PARAMETERS = ("parallel_tool_calls", "response_format")
# Parameters that llama.cpp does not know.
_UNKNOWN_PARAMETERS = ("reasoning_effort", "reasoning", "verbosity")


class LocalProvider(OpenAIProvider):
    kind = "local"
    needs_address = False

    def __init__(self, route: ProviderRoute, timeouts: Timeouts, socket: Path) -> None:
        # The server holds a thread per open connection, so idle ones are not kept.
        route = ProviderRoute(
            route.name,
            route.kind,
            "http://localhost/v1",
            always_max_tokens=True,
            no_store=False,
            open_parameters=True,
        )
        super().__init__(route, timeouts, socket=socket)

    async def warm(self) -> Sequence[str]:
        """Does nothing: the server is local and its connections are not kept."""
        return ()

    async def answer(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        offer = read_offer(call.tools)
        call.leave_out(_UNKNOWN_PARAMETERS)
        if offer is None:
            _check_response_format(call.parameters.known.response_format)
            async with aclosing(super().answer(await convert(call, _plain_call))) as pieces:
                async for piece in pieces:
                    yield piece
            return
        if call.parameters.known.response_format.type != "text":
            call.ignore(("response_format",))
        if len(offer.functions) > CHOICES_MOST:
            raise CannotDo(Sentence("functions_most", most=CHOICES_MOST), "tools")
        yield await self._ask_exactly(call, offer) or await self._send(call, offer, exact=False)

    async def _ask_exactly(self, call: ProviderCall, offer: Offer) -> Piece | None:
        """Calls the model with the exact schemas; returns None if one is unsupported or too expensive."""
        try:
            check_schema(msgspec.json.encode(offer.response_format(exact=True)["json_schema"]["schema"]))
            return await self._send(call, offer, exact=True)
        except TooMuch:
            return None
        except ProviderError as error:
            if error.failure is not Failure.REFUSED:
                raise
            return None

    async def _send(self, call: ProviderCall, offer: Offer, *, exact: bool) -> Piece:
        """Collects the whole answer, since partial JSON cannot be interpreted."""
        text, finish_reason = "", "stop"
        bind = partial(_bound_call, offer=offer, exact=exact)
        async with aclosing(super().answer(await convert(call, bind))) as pieces:
            async for piece in pieces:
                text += "".join(piece.contents)
                finish_reason = piece.finish_reason or finish_reason
                if piece.last:
                    return _read_piece(text, finish_reason, piece)
        raise ProviderError("ended its stream before the answer was complete")


def _check_response_format(wanted: AnswerFormat) -> None:
    for schema in (wanted.answer_schema, wanted.schema):
        try:
            if schema:
                check_schema(bytes(schema))
        except TooMuch as error:
            raise CannotDo(Sentence("schema_not_supported", why=str(error)), "response_format") from None


def _plain_call(call: ProviderCall) -> ProviderCall:
    messages = call.messages
    if any(message.role == "tool" or message.calls or message.tool_call_id for message in messages.parsed):
        messages = render_as_plain_text(messages)
    return replace(call, messages=messages, tools=NO_TOOLS)


def _bound_call(call: ProviderCall, *, offer: Offer, exact: bool) -> ProviderCall:
    parameters = {name: value for name, value in call.parameters.fields.items() if name not in _TOOL_PARAMETERS}
    parameters["response_format"] = msgspec.Raw(msgspec.json.encode(offer.response_format(exact=exact)))
    return replace(
        call,
        messages=render_as_plain_text(call.messages).insert_guidance(offer.guidance),
        tools=NO_TOOLS,
        parameters=Parameters(msgspec.json.encode(parameters)),
        stream=True,
        sink=None,
    )


def _read_piece(text: str, finish_reason: str, last: Piece) -> Piece:
    piece = Piece(finish_reason=finish_reason, usage=last.usage, last=True)
    answer = read_answer(text)
    if isinstance(answer, str):
        piece.contents.append(answer)
    elif answer is not None:
        piece.tool_calls.append(answer)
    elif finish_reason != "length":
        raise ProviderError("did not keep to the schema it was given")
    return piece
