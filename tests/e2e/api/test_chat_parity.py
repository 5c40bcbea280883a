"""One corpus of chats over HTTP and over gRPC: the same answers, errors, requests to the provider, and charges."""

import json
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest

from services.router.prompts.tokens import count
from services.rules.usage import counts_of
from tests.e2e.chats import QUESTION, RAIN, WEATHER
from tests.e2e.transports import Failure, OverHttp, OverRpc, Told, Transport
from tests.support.forwarded_parameters import FORWARDED
from tests.support.service import Service, wait_for_requests
from tests.support.upstreams.openai import TOO_LONG, Reply, Upstream
from tests.support.waiting import wait_until

CALLS: Final[list[dict[str, Any]]] = [
    {"index": 0, "id": "call_a", "function": {"name": "get_weather", "arguments": '{"city":'}},
    {"index": 0, "function": {"arguments": '"Paris"}'}},
    {"index": 1, "id": "7f", "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'}},
]
WHOLE_CALLS: Final[list[dict[str, Any]]] = [
    {"id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}},
    {"id": "7f", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'}},
]
CALLING: Final = Reply(contents=[], tool_calls=CALLS, message_tool_calls=WHOLE_CALLS, finish_reason="tool_calls")
PATCH: Final = {
    "type": "custom",
    "custom": {
        "name": "apply_patch",
        "description": "Changes files.",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "a"'}},
    },
}


def patching(*arguments: str) -> Reply:
    """A call with its arguments in pieces."""
    function = {"name": "apply_patch", "arguments": "".join(arguments)}
    first = {"index": 0, "id": "call_a", "function": {"name": "apply_patch", "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": each}} for each in arguments]
    whole = [{"id": "call_a", "type": "function", "function": function}]
    return Reply(contents=[], tool_calls=[first, *pieces], message_tool_calls=whole, finish_reason="tool_calls")


PATCHING: Final = patching('{"inp', 'ut": "*** Begin', "\\n+\\", 'u00e9 \\"x\\""', "}")
UNFORMED: Final = patching("*** Beg", "in")
CITED: Final = {
    "type": "url_citation",
    "url_citation": {"start_index": 0, "end_index": 2, "title": "Rain", "url": "https://rain.test/"},
}
SEED_REFUSED: Final = Reply(status=400, body='{"error":{"message":"Unknown parameter: seed"}}')
SCHEMA: Final = {
    "name": "forecast",
    "description": "A forecast.",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"degrees": {"type": "integer", "minimum": -90, "maximum": 60.5}, "wet": {"type": "boolean"}},
        "required": ["degrees", "wet"],
        "additionalProperties": False,
        "examples": [None, [], {}, "ünï", 1e21, 2**53 + 1],
    },
}
ROUND_TRIP: Final[list[dict[str, Any]]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": [{"type": "text", "text": "In French."}]},
    {
        "role": "user",
        "content": [{"type": "text", "text": "How is "}, {"type": "text", "text": "Paris?"}],
        "name": "ann",
    },
    {"role": "assistant", "content": "Let me see.", "tool_calls": WHOLE_CALLS},
    {"role": "tool", "tool_call_id": "call_a", "content": "rain"},
    {"role": "tool", "tool_call_id": "7f", "content": [{"type": "text", "text": "sun"}]},
    {"role": "assistant", "tool_calls": WHOLE_CALLS[:1]},
    {"role": "tool", "tool_call_id": "call_a", "content": ""},
    {"role": "assistant", "refusal": "I will not say."},
    {"role": "user", "content": "Go on\0 – 雨 🌧 \u2028"},  # noqa: RUF001
]


class Case(NamedTuple):
    fields: Mapping[str, Any] = {}
    replies: tuple[Reply, ...] = (Reply(),)
    messages: list[Any] = QUESTION


SERVED: Final = {
    "text": Case(replies=(Reply(contents=RAIN),)),
    "no model": Case({"model": "auto"}),
    "fortissimo": Case({"model": "fortissimo"}),
    "messages of all roles": Case({"tools": [WEATHER]}, messages=ROUND_TRIP),
    "nothing said": Case(replies=(Reply(contents=[]),)),
    "characters of all lengths": Case(replies=(Reply(contents=["é", "雨", "🌧", '"\\\n\0']),)),
    "our own count": Case(replies=(Reply(contents=RAIN, usage=None),)),
    "a cached prompt": Case(
        replies=(
            Reply(
                usage={
                    "prompt_tokens": 1_000,
                    "completion_tokens": 3,
                    "prompt_tokens_details": {"cached_tokens": 900},
                }
            ),
        )
    ),
    "a prompt written to a cache, and reasoning": Case(
        replies=(
            Reply(
                usage={
                    "prompt_tokens": 1_000,
                    "completion_tokens": 30,
                    "prompt_tokens_details": {"cached_tokens": 300, "cache_write_tokens": 600},
                    "completion_tokens_details": {"reasoning_tokens": 20},
                }
            ),
        )
    ),
    "tool calls": Case({"tools": [WEATHER]}, (CALLING,)),
    "text and tool calls": Case(
        {"tools": [WEATHER]}, (Reply(tool_calls=CALLS, message_tool_calls=WHOLE_CALLS, finish_reason="tool_calls"),)
    ),
    "tools, automatically": Case({"tools": [WEATHER], "tool_choice": "auto", "parallel_tool_calls": False}, (CALLING,)),
    "no tools now": Case({"tools": [WEATHER], "tool_choice": "none"}),
    "a tool": Case({"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": True}, (CALLING,)),
    "this tool": Case(
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}, (CALLING,)
    ),
    "a tool with a name that not all vendors take": Case(
        {"tools": [{"type": "function", "function": {"name": "mcp.files/read"}}]}
    ),
    "a custom tool": Case({"tools": [PATCH]}, (PATCHING,)),
    "a custom tool that has to be called": Case(
        {"tools": [WEATHER, PATCH], "tool_choice": {"type": "custom", "custom": {"name": "apply_patch"}}}, (PATCHING,)
    ),
    "a custom tool whose model keeps to no form": Case({"tools": [PATCH]}, (UNFORMED,)),
    "a custom tool that was called": Case(
        {"tools": [PATCH]},
        messages=[
            *QUESTION,
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "call_a", "type": "custom", "custom": {"name": "apply_patch", "input": 'a\n"b"'}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_a", "content": "done"},
        ],
    ),
    "a tool without parameters": Case({"tools": [{"type": "function", "function": {"name": "now"}}]}),
    "a choice without tools": Case({"tool_choice": "none"}),
    "text format": Case({"response_format": {"type": "text"}}),
    "JSON": Case({"response_format": {"type": "json_object"}}),
    "JSON by a schema": Case({"response_format": {"type": "json_schema", "json_schema": SCHEMA}}),
    "sampling": Case(
        {
            "temperature": 0.25,
            "top_p": 0.5,
            "seed": -(2**53),
            "presence_penalty": -2,
            "frequency_penalty": 1.5,
            "logit_bias": {"50256": -100, "7": 0.5},
            "stop": ["END", "\n"],
        }
    ),
    "zeros": Case({"temperature": 0, "top_p": 0, "seed": 0, "presence_penalty": 0, "frequency_penalty": 0}),
    "what is to be cached": Case(
        {"prompt_cache_key": "ann", "tools": [{**WEATHER, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}
        ],
    ),
    "each parameter": Case(FORWARDED),
    "reasoning": Case({"reasoning_effort": "low", "verbosity": "high"}),
    "reasoning that is shown": Case({"include_reasoning": True}, (Reply(reasoning=["So", " it is."]),)),
    "reasoning that is not shown": Case(replies=(Reply(reasoning=["So", " it is."]),)),
    "reasoning by a word": Case({"reasoning": {"effort": "low"}}),
    "reasoning by tokens": Case({"reasoning": {"max_tokens": 2000, "enabled": True}}),
    "some of the tools": Case(
        {
            "tools": [WEATHER],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get_weather"}}]},
            },
        },
        (CALLING,),
    ),
    "words for a chat template": Case({"chat_template_kwargs": {"enable_thinking": False, "depth": [1, 2.5, None]}}),
    "pages that are cited": Case(replies=(Reply(contents=RAIN, annotations=[CITED]),)),
    "a padded stream": Case({"stream_options": {"include_obfuscation": True}}, (Reply(contents=RAIN),)),
    "max_tokens": Case({"max_tokens": 2}, (Reply(contents=RAIN, usage=None),)),
    "cut by the provider": Case({"max_tokens": 2**31 - 1}, (Reply(finish_reason="length"),)),
    "filtered": Case(replies=(Reply(finish_reason="content_filter"),)),
    "refused by the model": Case(replies=(Reply(contents=[], refusals=["I", " will", " not."]),)),
    "a parameter that the model does not take": Case({"seed": 7}, (SEED_REFUSED, Reply())),
    "a prompt that is too long for the model": Case(replies=(Reply(status=400, body=TOO_LONG),)),
    "an upstream that fails": Case(replies=(Reply(status=500, body='{"error":"out of order"}'),) * 2),
    "an upstream that does not know us": Case(replies=(Reply(status=401),)),
    "an upstream that is busy": Case(replies=(Reply(status=429, headers={"retry-after": "7"}),)),
    "an upstream that talks nonsense": Case(replies=(Reply(body="<html>"),) * 2),
    "an upstream that breaks off": Case(replies=(Reply(contents=RAIN, cut_after=3),) * 2),
}

# Refused before any provider is asked.
INVALID: Final[dict[str, Case]] = {
    "no messages": Case(messages=[]),
    "no parts": Case(messages=[{"role": "user", "content": []}]),
    "a silent assistant": Case(messages=[{"role": "assistant"}]),
    "a result of no call": Case(messages=[{"role": "tool", "content": "rain"}]),
    "calls by the user": Case(messages=[{"role": "user", "content": "", "tool_calls": WHOLE_CALLS}]),
    "a call without an id": Case(
        messages=[{"role": "assistant", "tool_calls": [{**WHOLE_CALLS[0], "id": ""}]}],
    ),
    "an unknown model": Case({"model": "gpt-4o"}),
    "a reserved model": Case({"model": "piano"}),
    "temperature": Case({"temperature": 2.5}),
    "top_p": Case({"top_p": -0.1}),
    "presence_penalty": Case({"presence_penalty": 3}),
    "frequency_penalty": Case({"frequency_penalty": -3}),
    "logit_bias": Case({"logit_bias": {"7": 101}}),
    "five stops": Case({"stop": ["a", "b", "c", "d", "e"]}),
    "no tokens": Case({"max_tokens": 0}),
    "reasoning_effort": Case({"reasoning_effort": "Very much!"}),
    "a tool's name": Case({"tools": [{"type": "function", "function": {"name": "get weather"}}]}),
    "a choice of another tool": Case(
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "now"}}}
    ),
    "a choice of no tool": Case({"tool_choice": "required"}),
}


class Party(NamedTuple):
    """One transport, with an account and a key of its own."""

    transport: Transport
    account: str
    api_key: str
    headers: Mapping[str, str] = {}


@pytest.fixture
def transports(service: Service) -> Iterator[tuple[Transport, Transport]]:
    with OverRpc(service) as over_rpc:
        yield OverHttp(service), over_rpc


@pytest.fixture
def parties(service: Service, transports: tuple[Transport, Transport]) -> tuple[Party, Party]:
    accounts = service.new_account(), service.new_account()
    http, rpc = [Party(*each) for each in zip(transports, accounts, map(service.new_key, accounts), strict=True)]
    return http, rpc


def ask(party: Party, upstream: Upstream, case: Case, *, stream: bool) -> tuple[Told, list[Any]]:
    """Returns what the client and the provider were told."""
    upstream.requests.clear()
    upstream.replies.extend(case.replies)
    # A typed message does not tell an empty list from none.
    messages = {"messages": case.messages} if case.messages else {}
    body = {"model": "mezzo", **messages, **case.fields, "stream": stream}
    told = party.transport.ask(party.api_key, body, party.headers)
    # As text, because a model answers in the order of a schema.
    asked = [json.dumps(request.json) for request in upstream.requests]
    upstream.replies.clear()
    return told, asked


def bookings(service: Service, party: Party) -> dict[str, list[Any]]:
    """Returns all that the ledger and the holds say of each request, but for times and ids."""
    found: dict[str, list[Any]] = defaultdict(list)
    for entry in service.entries(party.account):
        counts = entry.requests, *counts_of(entry)
        booked = entry.kind, entry.customer_nanos, entry.loss_nanos, entry.reason, entry.basis, entry.end
        found[entry.request_id].append((*booked, entry.class_id, *counts))
    for hold in service.holds(party.account):
        found[hold.request_id].append((hold.state, hold.end, hold.basis, hold.charged_nanos))
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_same_chats_have_the_same_answers_requests_upstream_and_charges(
    service: Service, upstream: Upstream, parties: tuple[Party, Party], stream: bool
) -> None:
    asked: dict[str, tuple[Told, Told]] = {}
    for name, case in (SERVED | INVALID).items():
        asking = [ask(party, upstream, case, stream=stream) for party in parties]
        (by_http, sent_by_http), (by_rpc, sent_by_rpc) = asking
        assert by_rpc == by_http, name
        assert bool(by_http.citations) == ("cited" in name), name
        assert sent_by_rpc == sent_by_http, name
        assert bool(sent_by_http) == (name in SERVED), name
        asked[name] = by_http, by_rpc
    balances = [service.settled_balance_nanos(party.account) for party in parties]
    assert balances[0] == balances[1]
    of_http, of_rpc = [bookings(service, party) for party in parties]
    for name, (by_http, by_rpc) in asked.items():
        booked = of_http[by_http.request_id]
        assert of_rpc[by_rpc.request_id] == booked, name
        charged_nanos = sum(-entry[1] for entry in booked if entry[0] == "charge")
        assert by_rpc.cost_nanos in (None, charged_nanos), name
        assert bool(charged_nanos) == (by_http.failure is None or bool(by_http.text)), name
    assert service.audit() == []


def test_chats_for_an_account_cost_what_they_cost_with_a_key(
    service: Service, upstream: Upstream, parties: tuple[Party, Party]
) -> None:
    """Here the caller has no key, but a grant of the operator."""
    by_key, for_account = parties
    service.legato("callers", "grant", "platform", "--account", for_account.account)
    headers = {"x-legato-caller": "platform", "x-legato-account": for_account.account}
    for_account = for_account._replace(api_key="", headers=headers)
    for name in (
        "text",
        "our own count",
        "a cached prompt",
        "tool calls",
        "an upstream that breaks off",
        "no messages",
    ):
        for stream in (False, True):
            with_key, for_it = [
                ask(party, upstream, (SERVED | INVALID)[name], stream=stream) for party in (by_key, for_account)
            ]
            assert for_it == with_key, name
    balances = [service.settled_balance_nanos(party.account) for party in parties]
    assert balances[0] == balances[1]


def _key_of(service: Service, *scopes: str, credits: str = "5.00", **limits: str) -> str:
    account = service.new_account(credits)
    for command, option in limits.items():
        service.legato(*command.split("_"), account, *option.split())
    return service.new_key(account, scopes)


REFUSED: Final[dict[str, Callable[[Service], str]]] = {
    "no key": lambda service: "",
    "a wrong key": lambda service: "sk-legato-unknown",
    "a key without the scope": lambda service: _key_of(service, "models"),
    "a class that is not allowed": lambda service: _key_of(service, accounts_set="--classes mezzo"),
    "a suspended account": lambda service: _key_of(service, accounts_suspend=""),
    "no credit": lambda service: _key_of(service, credits="0"),
    "nothing left of the day": lambda service: _key_of(service, limits_set="--day 0"),
    "nothing left at all": lambda service: _key_of(service, limits_set="--total 0"),
}


def test_keys_and_accounts_that_may_not_chat_are_refused_alike(
    service: Service, upstream: Upstream, transports: tuple[Transport, Transport]
) -> None:
    for name, key_of in REFUSED.items():
        api_key = key_of(service)
        for stream in (False, True):
            body = {"model": "forte", "messages": QUESTION, "stream": stream}
            by_http, by_rpc = [transport.ask(api_key, body) for transport in transports]
            assert by_http.failure is not None, name
            assert by_rpc == by_http, name
    assert upstream.requests == []


def test_rate_limits_of_a_key_are_the_same_on_both_and_shared(
    service: Service, upstream: Upstream, transports: tuple[Transport, Transport]
) -> None:
    http, rpc = transports
    body = {"model": "mezzo", "messages": QUESTION}
    refusals = []
    for first, second in ((http, rpc), (rpc, http)):
        api_key = _key_of(service, accounts_set="--requests-per-minute 1")
        served, refused = first.ask(api_key, body), second.ask(api_key, body)
        assert served.failure is None
        assert refused.failure is not None
        assert refused.rates == served.rates == {**refused.rates, "x-ratelimit-limit-requests": "1"}
        refusals.append(refused)
    assert refusals[0] == refusals[1]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_answers_end_at_the_same_token_where_the_credit_does(
    service: Service, upstream: Upstream, transports: tuple[Transport, Transport], stream: bool
) -> None:
    body = {"model": "mezzo", "messages": QUESTION, "stream": stream}
    for option in ({"credits": "0.0001"}, {"limits_set": "--day 0.0001"}):
        told = []
        for transport in transports:
            upstream.replies.append(Reply(contents=[" rain"], repeat=2_000, usage=None))
            told.append(transport.ask(_key_of(service, **option), body))
        assert told[0] == told[1]
        assert (told[0].finish_reason, told[0].cut_by) == ("length", "credit" if "credits" in option else "spend_limit")


def test_request_that_its_client_named_is_served_once(
    service: Service, upstream: Upstream, parties: tuple[Party, Party]
) -> None:
    body = {"model": "mezzo", "messages": QUESTION}
    other = {**body, "max_tokens": 5}
    for stream in (False, True):
        repeats = []
        for party in parties:
            headers = {"Idempotency-Key": secrets.token_hex(8)}
            asking = [{**each, "stream": stream} for each in (body, body, other)]
            first, *others = [party.transport.ask(party.api_key, each, headers) for each in asking]
            assert first.failure is None
            repeats.append([_without(first.request_id, each) for each in others])
        assert repeats[0] == repeats[1]
        assert [each.code for each in repeats[0]] == ["request_already_processed", "idempotency_key_reused"]
    assert len(upstream.requests) == 4


def _without(request_id: str, told: Told) -> Failure:
    """Returns the failure with a message that does not name this request."""
    assert told.failure is not None
    return told.failure._replace(message=told.failure.message.replace(request_id, "ID"))


def test_key_that_is_revoked_while_it_chats_ends_the_answer_alike(
    service: Service, upstream: Upstream, transports: tuple[Transport, Transport]
) -> None:
    failures = []
    for transport in transports:
        upstream.requests.clear()
        upstream.replies.append(Reply(contents=[" rain"], repeat=100_000, event_delay_s=0.02))
        account = service.new_account()
        made = service.make_key(account)
        told: list[Told] = []
        body = {"model": "mezzo", "messages": QUESTION, "stream": True}
        asking = threading.Thread(target=lambda: told.append(transport.ask(made.api_key, body)))  # noqa: B023
        asking.start()
        request = wait_for_requests(upstream)
        wait_until(lambda: request.writes >= 5)  # noqa: B023
        service.legato("keys", "revoke", made.key.key_id)
        asking.join()
        failures.append(told[0].failure)
        service.settled_balance_nanos(account)
        [entry] = service.entries(account)
        assert entry.completion_tokens == count(told[0].text) > 0
        assert entry.end == "key_refused"
    assert failures[0] == failures[1]
    assert failures[0] is not None
    assert failures[0].code == "invalid_api_key"
