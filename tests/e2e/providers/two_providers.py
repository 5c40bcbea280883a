"""A service whose classes have two models, each of a scripted provider, and what comes of a chat with it."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from services.router.prompts.tokens import count
from tests.e2e.chats import QUESTION, WEATHER
from tests.e2e.raw_http import Answer, post_chat
from tests.e2e.rules import INPUT_NANOS, OUTPUT_NANOS
from tests.services.router.providers.certificates import make_certificate, server_context
from tests.support.moved_time.moved_clock import MovedClock
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.scripted import ScriptedUpstream, Spoken

CREDIT_NANOS: Final = 5 * 10**9
# By whether the client offers tools. Each provider reports a usage of its own.
FIRST: Final = {
    False: Spoken(text=("It", " rains", "."), prompt_tokens=61, completion_tokens=7),
    True: Spoken(call=("get_weather", '{"city":', '"Paris"}'), prompt_tokens=62, completion_tokens=8),
}
SECOND: Final = {
    False: Spoken(text=("The", " sun", " shines."), prompt_tokens=53, completion_tokens=5),
    True: Spoken(call=("get_weather", '{"city":', '"Lyon"}'), prompt_tokens=54, completion_tokens=6),
}

PROVIDER = """
[providers.{name}]
kind = "openai"
base_url = "{base_url}"
zero_retention = true
[models.{name}]
provider = "{name}"
name = "{name}"
context_tokens = 100000
max_output_tokens = 3000
"""
CLASSES = """
[classes]
mezzo = { models = MODELS }
forte = { models = MODELS }
fortissimo = { models = MODELS }
"""


@dataclass(frozen=True)
class Charge:
    prompt_tokens: int
    completion_tokens: int
    # Whose count it is: the provider's, or ours.
    basis: str


@dataclass(frozen=True)
class Seen:
    """What the client, the providers and the clock say of one chat."""

    request_id: str
    status: int
    # Of the error that refuses the chat or ends it.
    code: str | None
    said: str
    # Of each provider.
    calls: tuple[int, int]
    # How far the clock was moved meanwhile, and how long it took by the machine's.
    moved_s: float
    took_s: float


class Client:
    """An account with one key."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._account = service.new_account()
        self._api_key = service.new_key(self._account)

    def post(self, body: dict[str, Any]) -> Answer:
        return post_chat(self._service, self._api_key, body)

    @cached_property
    def charges(self) -> dict[str, Charge]:
        """The charge of each request that has one, which is exactly its tokens times their price. No hold remains, and
        nothing else is booked. To be read after the last chat."""
        charged_nanos = CREDIT_NANOS - self._service.settled_balance_nanos(self._account)
        entries = self._service.entries(self._account)
        assert all(hold.state != "held" for hold in self._service.holds(self._account))
        assert all((entry.kind, entry.loss_nanos) == ("charge", 0) for entry in entries)
        assert charged_nanos == -sum(entry.customer_nanos for entry in entries)
        charges = {}
        for entry in entries:
            cost_nanos = INPUT_NANOS * entry.prompt_tokens + OUTPUT_NANOS * entry.completion_tokens
            assert entry.customer_nanos == -cost_nanos
            assert entry.request_id not in charges
            charges[entry.request_id] = Charge(entry.prompt_tokens, entry.completion_tokens, entry.basis or "")
        return charges


class TwoProviders:
    def __init__(
        self,
        service: Service,
        clock: MovedClock,
        first: ScriptedUpstream,
        second: ScriptedUpstream,
        not_trusted: ScriptedUpstream,
    ) -> None:
        self.service = service
        self.clock = clock
        self.first = first
        self.second = second
        # A server whose certificate is its own.
        self.not_trusted = not_trusted
        self._renewals = 0

    def new_client(self) -> Client:
        return Client(self.service)

    def renew(self, *, first_url: str = "", only_one: bool = False) -> None:
        """Makes both models well and known from nothing before."""
        self._renewals += 1
        urls = {f"first{self._renewals}": first_url or self.first.base_url}
        if not only_one:
            urls[f"second{self._renewals}"] = self.second.base_url
        providers = [PROVIDER.format(name=name, base_url=url) for name, url in urls.items()]
        self.service.follow_routes("".join(providers) + CLASSES.replace("MODELS", str(list(urls))))
        for upstream in (self.first, self.second):
            upstream.scripts.clear()

    def chat(self, client: Client, *, streams: bool, has_tools: bool, **fields: Any) -> Seen:
        self.first.answer, self.second.answer = FIRST[has_tools], SECOND[has_tools]
        self.first.requests.clear()
        self.second.requests.clear()
        ahead_s, began_s = self.clock.ahead_s, time.monotonic()
        body: dict[str, Any] = {"model": "mezzo", "messages": QUESTION, "stream": streams, **fields}
        if has_tools:
            body["tools"] = [WEATHER]
        answer = client.post(body)
        moved_s, took_s = self.clock.ahead_s - ahead_s, time.monotonic() - began_s
        code, said = _read_stream(answer) if streams and answer.status == 200 else _read_whole(answer)
        calls = len(self.first.requests), len(self.second.requests)
        return Seen(answer.headers["x-request-id"], answer.status, code, said, calls, moved_s, took_s)


def _read_whole(answer: Answer) -> tuple[str | None, str]:
    if answer.status != 200:
        return answer.error["code"], ""
    [choice] = answer.json["choices"]
    message = choice["message"]
    calls = message.get("tool_calls") or []
    return None, (message["content"] or "") + "".join(_called(call["function"]) for call in calls)


def _read_stream(answer: Answer) -> tuple[str | None, str]:
    """A stream that ends in order has its end; one that does not has an error in its place."""
    said, code, is_done = "", None, False
    for data in (line[6:] for line in answer.body.decode().split("\n\n") if line.startswith("data: ")):
        assert not is_done
        assert code is None
        is_done = data == "[DONE]"
        told = {} if is_done else json.loads(data)
        if "error" in told:
            code = told["error"]["code"] or told["error"]["type"]
        for choice in told.get("choices", ()):
            said += choice["delta"].get("content") or ""
            said += "".join(_called(call["function"]) for call in choice["delta"].get("tool_calls", ()))
    assert is_done is (code is None)
    return code, said


def _called(function: dict[str, str]) -> str:
    return function.get("name", "") + function.get("arguments", "")


def said_by(spoken: Spoken) -> str:
    return "".join(spoken.text) + "".join(spoken.call or ())


def begun_by(spoken: Spoken) -> str:
    """Returns what a client has of an answer that stops after its first piece."""
    return spoken.text[0] if spoken.call is None else "".join(spoken.call[:2])


def our_count(said: str) -> int:
    return count(said)


@contextmanager
def two_providers(folder: Path) -> Iterator[TwoProviders]:
    first, second = ScriptedUpstream(FIRST[False]), ScriptedUpstream(SECOND[False])
    not_trusted = ScriptedUpstream(FIRST[False], server_context(make_certificate(folder, "localhost")))
    clock = MovedClock(folder, is_waiting=lambda: first.is_waiting() or second.is_waiting())

    async def sleep(delay_s: float) -> None:
        until_s = clock.ahead_s + delay_s
        while clock.ahead_s < until_s:
            await asyncio.sleep(0.001)

    first.sleep = second.sleep = sleep
    with (
        clock,
        UpstreamThread(first),
        UpstreamThread(second),
        UpstreamThread(not_trusted),
        Service(first, clock.environ, is_forked=False) as service,
    ):
        yield TwoProviders(service, clock, first, second, not_trusted)
