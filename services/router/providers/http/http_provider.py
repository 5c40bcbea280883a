"""Calls a provider's server over HTTP, and reads its answer, whole or as server-sent events."""

import asyncio
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar, Final, cast
from urllib.parse import quote, urlencode

import msgspec

from services.chassis.http_client.connection import HttpConnection
from services.chassis.http_client.failures import ConnectionRefused, Interrupted, TimedOut
from services.chassis.http_client.origin import RequestHead, read_url
from services.chassis.timing.deadlines import TimeLimit
from services.router.providers.abilities import Abilities
from services.router.providers.ability_table import abilities_of
from services.router.providers.answer import LARGEST_PIECE_CHARACTERS, ProviderAnswer
from services.router.providers.authentication.credentials import Authentication, CredentialsUnavailable
from services.router.providers.base import (
    Failure,
    Piece,
    ProviderCall,
    ProviderError,
    ProviderRoute,
    ProviderTimedOut,
    ServerRefused,
    Timeouts,
)
from services.router.providers.errors.classify import READ_BODY_STATUSES, ErrorPatterns, read_failure
from services.router.providers.errors.error_body import LARGEST_ERROR_BODY_BYTES, ErrorBody, read_error_body
from services.router.providers.errors.lessons import Lesson, learn
from services.router.providers.http.answer_buffer import AnswerBuffer, BufferBudget
from services.router.providers.http.answer_connection import AnswerConnection, AnswerConnections
from services.router.providers.http.aws_events import AWS_EVENT_STREAM, AwsEventReader
from services.router.providers.http.object_limit import check_objects
from services.router.providers.http.stream import Stream
from services.router.providers.http.telemetry_names import telemetry_name
from services.router.providers.translation.conversion import convert
from services.router.providers.translation.tool_names import rename_tools
from services.router.reasoning.gathering import GatheredThoughts
from services.router.reasoning.restoring import TakenBack
from services.router.schema.parameters import Parameters

# Limit on an answer that is not streamed: parsing it blocks the event loop. A million tokens fit, however they are
# escaped.
LARGEST_ANSWER_BYTES = 8 * 1024 * 1024
# Timeout for an error's body: the status is known and mostly sufficient.
AFTER_FAILURE_S = 2.0
# A status whose body has the reason why a model is not found.
_NOT_FOUND: Final = 404
NO_HEADERS: Final[Mapping[str, str]] = {}
# The header whose key is a Bearer token.
AUTHORIZATION: Final = "authorization"


class HttpProvider(ABC):
    """A provider at one address. A subclass states what is its own: headers, path, body, and the format of answers."""

    # As the routes file names it.
    kind: ClassVar[str]
    answer_type: ClassVar[type[ProviderAnswer]]
    # Whether it is remote: then the routes file must have its address.
    needs_address: ClassVar[bool] = True
    # API versions, if there are several: the routes file must then name one, and a key.
    versions: ClassVar[tuple[str, ...]] = ()
    # What its refusals teach of models.
    lessons: ClassVar[Sequence[Lesson]] = ()
    # How often one chat is sent again, each time without what its model has just refused.
    most_lessons: ClassVar[int] = 3
    # Clouds that have its models at addresses of their own, each with its versions.
    platforms: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # The names that functions may have.
    tool_name: ClassVar[re.Pattern[str]] = re.compile(r"[a-zA-Z0-9_-]{1,64}")
    # Keys of the routes file that are true or false.
    flags: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        route: ProviderRoute,
        timeouts: Timeouts,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        tls: ssl.SSLContext | None = None,
        socket: Path | None = None,
    ) -> None:
        """`headers` are sent beside those of the key; `tls` replaces the default trust store; `socket` is a unix socket
        to use instead of the host in the URL, without keep-alive."""
        self.telemetry_name = telemetry_name(route)
        # What models take, by their names and by what was known of them, where a refusal has taught more.
        self._learned: dict[tuple[str, Abilities], Abilities] = {}
        self._origin, path = read_url(route.base_url, tls, socket)
        path, _, query = path.partition("?")
        self._query = "&".join(filter(None, (query, urlencode(route.query, quote_via=quote))))
        self._base_path = path.rstrip("/")
        self._chosen_header = route.key_header
        self._authentication = None if route.credentials is None else route.credentials.open(self._origin)
        # Added to every request.
        self._extra: dict[str, object] = msgspec.json.decode(route.extra_json)
        self.needs_max_tokens = route.always_max_tokens
        self._timeouts = timeouts
        self._connections = AnswerConnections(self._origin, self._timeouts.connect_s, keep=socket is None)
        self._budget = BufferBudget()
        self._headers = {
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "legato",
            **headers,
            **dict(route.headers),
        }
        self.use_key(route.api_key)

    @property
    def credentials_failure(self) -> str:
        return "" if self._authentication is None else self._authentication.failure

    def use_key(self, api_key: str) -> None:
        self._api_key = api_key
        self._head = RequestHead(self._origin, {**self._headers, **self._headers_of_key(api_key)})

    def _headers_of_key(self, api_key: str) -> Mapping[str, str]:
        name = self._chosen_header
        if not api_key or not name:
            return self._key_headers(api_key) if self._authentication is None else NO_HEADERS
        return {name: f"Bearer {api_key}" if name == AUTHORIZATION else api_key}

    @abstractmethod
    def _key_headers(self, api_key: str) -> Mapping[str, str]:
        """Returns the headers that send an API key."""

    @abstractmethod
    def _path(self, call: ProviderCall) -> str:
        """Returns where the call is posted."""

    @abstractmethod
    def takes_back(self, model_name: str) -> TakenBack:
        """Returns which earlier thoughts a model is sent."""

    def _call_headers(self, call: ProviderCall) -> Mapping[str, str]:
        """Returns headers that only some calls have."""
        return NO_HEADERS

    def _refuses_stop(self, stop: str) -> bool:
        """Returns whether the provider would refuse a request for this stop: most do for an empty one."""
        return not stop

    @abstractmethod
    def _write_body(self, call: ProviderCall) -> bytes:
        """Writes the body whenever it is sent: it is as long as the prompt, and let go once it is sent."""

    async def aclose(self) -> None:
        if self._authentication is not None:
            await self._authentication.aclose()
        await self._connections.aclose()

    async def warm(self) -> Sequence[str]:
        if self._authentication is not None:
            await self._check_in(self._authentication)
        try:
            return await self._connections.warm()
        except Interrupted as error:
            raise _failure_of(error) from None

    async def answer(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        """Yields the pieces of the answer. Closing the generator closes the connection."""
        if "stop" in call.parameters.fields:
            call.leave_out_stops(self._refuses_stop)
        if call.has_unusual_names and not call.tool_names:
            call.tool_names = await convert(call, partial(rename_tools, accepted=self.tool_name))
        loop = asyncio.get_running_loop()
        total_s = self._timeouts.total_s
        begun_by_s = loop.time() + min(total_s, call.patience_s or total_s)
        try:
            connection = await self._ask(call)
        except Interrupted as error:
            raise _failure_of(error) from None
        streams, sink, is_traced, shows_thoughts = call.stream, call.sink, call.is_traced, call.keeps_thoughts
        thoughts = GatheredThoughts() if shows_thoughts or call.tools.json else None
        answer, buffer = self._answer_type(call)(), AnswerBuffer(self._budget)
        answer.expect(call.tool_names, thoughts, is_traced=is_traced, shows_thoughts=shows_thoughts)
        # It refers to the prompt, which is not needed any more.
        del call
        try:
            media_type = _media_type(connection.response.header(b"content-type"))
            if not _is_stream(media_type, streams=streams):
                await _read_whole(connection, answer, buffer)
                yield answer.pieces.popleft()
                while answer.pieces:
                    await asyncio.sleep(0)
                    yield answer.pieces.popleft()
                return
            events = AwsEventReader() if media_type == AWS_EVENT_STREAM else None
            stream = Stream(connection, self._timeouts.idle_s, answer, buffer, sink, events)
            arrived = stream.arrived_piece()
            if arrived is None:
                # Comments or pings restart the idle timeout, so another is needed too. After the first piece the caller
                # enforces the total timeout, since a slow client also takes time.
                with TimeLimit(begun_by_s - loop.time(), ProviderTimedOut()):
                    arrived = await stream.first_piece()
            piece = arrived
            yield piece
            while not piece.last:
                piece = await stream.next_piece()
                yield piece
            if not connection.is_read:
                await stream.read_to_end()
        except Interrupted as error:
            raise _failure_of(error) from None
        finally:
            buffer.release()
            # Reused if nothing is left to read.
            connection.release()

    async def _ask(self, call: ProviderCall) -> AnswerConnection:
        """Returns the connection with an answer. A model that refuses what nobody knew that it does not take is asked
        once more without it, and so are later chats from the beginning."""
        known, parameters = call.abilities or abilities_of(self.kind, call.model_name), call.parameters
        lessons_left, ignored = self.most_lessons, list(call.ignored)
        authentication, may_renew = self._authentication, True
        while True:
            call.ignored[:] = ignored
            call.takes = self._learned.get((call.model_name, known), known) if self._learned else known
            call.parameters = self._adapted(call, parameters)
            generation = 0 if authentication is None else await self._check_in(authentication)
            connection = await self._post(call)
            if connection.response.status == 200:
                return connection
            status, headers = connection.response.status, connection.response.headers
            refusal, error = await self._read_refusal(connection, self._answer_type(call).error_patterns)
            if authentication is not None and may_renew and await authentication.renew(generation, status, headers):
                may_renew = False
                continue
            learned = self._learn(call, refusal, error)
            if learned is None and self._leaves_out(call, refusal, error):
                continue
            if learned is None or not lessons_left:
                raise error
            self._learned[call.model_name, known] = learned
            lessons_left -= 1

    async def _check_in(self, authentication: Authentication) -> int:
        """Returns the generation of the credentials once they are valid."""
        try:
            await authentication.ready()
        except CredentialsUnavailable as error:
            raise ProviderError(f"has no valid credentials: {error}") from None
        return authentication.generation

    def _learn(self, call: ProviderCall, refusal: ErrorBody, error: ProviderError) -> Abilities | None:
        """Returns what the model takes by its refusal, or None if that teaches nothing new."""
        return learn(call.takes, refusal, self.lessons) if error.failure is Failure.REFUSED else None

    def _leaves_out(self, call: ProviderCall, refusal: ErrorBody, error: ProviderError) -> bool:
        """Leaves out of this call alone what was refused; returns whether there was anything to leave out."""
        return False

    def _answer_type(self, call: ProviderCall) -> type[ProviderAnswer]:
        """Returns the format of the answer to a call."""
        return self.answer_type

    def _adapted(self, call: ProviderCall, parameters: Parameters) -> Parameters:
        """Returns the parameters of a call as the model takes them."""
        return parameters

    def learned(self, model_name: str, abilities: Abilities | None) -> Sequence[str]:
        known = abilities or abilities_of(self.kind, model_name)
        return self._learned.get((model_name, known), known).differences(known)

    async def _post(self, call: ProviderCall) -> AnswerConnection:
        """Sends the request and returns the connection once the response head has arrived."""
        connection = await self._post_on(self._connections.acquire, call)
        if connection.was_closed_unheard:
            # A server may close an idle connection just as it is reused. A retry could run the request twice; but a
            # server that has read it does not close at once without a byte. curl and browsers retry in this case too,
            # and only in this: not after a timeout, and not on a new connection.
            connection = await self._post_on(self._connections.connect, call)
        return connection

    async def _post_on(
        self, open_connection: Callable[[], Awaitable[HttpConnection]], call: ProviderCall
    ) -> AnswerConnection:
        """Returns the connection without a response if it was closed unheard."""
        timeouts, body = self._timeouts, await convert(call, self._write_body)
        connection = cast(AnswerConnection, await open_connection())
        try:
            answer_s = timeouts.first_byte_s if call.stream else timeouts.whole_s
            connection.answer_within(min(answer_s, timeouts.total_s, call.patience_s or answer_s))
            path, headers = self._with_query(self._path(call)), self._call_headers(call)
            if self._authentication is not None:
                headers = {**headers, **self._authentication.headers(path, body)}
            head = self._head.for_body(path, body, call.traceparent, headers)
            posting = connection.post(head, body, call.on_sent)
            # Kept by the connection alone, until it is sent.
            del body
            await posting
        except BaseException as error:
            connection.release()
            if not isinstance(error, Interrupted) or not connection.was_closed_unheard:
                raise
        return connection

    def _with_query(self, path: str) -> str:
        """Returns a path with the query of the provider's address, such as the version of Azure's API."""
        if not self._query:
            return path
        return f"{path}{'&' if '?' in path else '?'}{self._query}"

    async def _read_refusal(
        self, connection: AnswerConnection, error_patterns: ErrorPatterns
    ) -> tuple[ErrorBody, ProviderError]:
        """Reads a response that is no answer, and what it means."""
        body, response = b"", connection.response
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
        try:
            if response.status in (*READ_BODY_STATUSES, _NOT_FOUND):
                connection.answer_within(AFTER_FAILURE_S)
                # A partial body is used too.
                with suppress(Interrupted):
                    while len(body) < LARGEST_ERROR_BODY_BYTES and (received := await connection.read()):
                        body += received
        finally:
            connection.release()
        return read_error_body(body), read_failure(response.status, body, error_patterns, headers)


def _failure_of(error: Interrupted) -> ProviderError:
    if isinstance(error, TimedOut):
        return ProviderTimedOut(str(error))
    return (ServerRefused if isinstance(error, ConnectionRefused) else ProviderError)(str(error))


def _is_stream(media_type: str, *, streams: bool) -> bool:
    """Returns whether the response is a stream, by its content type: some servers ignore the `stream` parameter."""
    return media_type != "application/json" if streams else media_type == "text/event-stream"


@lru_cache
def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


async def _read_whole(connection: AnswerConnection, answer: ProviderAnswer, buffer: AnswerBuffer) -> None:
    received = bytearray()
    while piece := await connection.read():
        received += piece
        if len(received) > LARGEST_ANSWER_BYTES:
            raise ProviderError("sent an endless answer")
        buffer.reserve(len(received))
    body = bytes(received)
    del received
    check_objects(body)
    if len(body) > LARGEST_PIECE_CHARACTERS:
        await asyncio.sleep(0)
    answer.begin_piece()
    answer.read_whole(body)
    answer.close()
