"""The report of an answer, and of its tokens when it ends."""

from typing import Any

import pytest

from legato_protos.router.v1.router_pb2 import (
    USAGE_SOURCE_COUNTED,
    USAGE_SOURCE_PROVIDER,
    ChatRequest,
    ChatResponse,
    Citation,
    Grant,
    Started,
)
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.packed_pieces import unpack_piece
from services.router.answers.grants import TokenAllowance
from services.router.answers.relay import Relay
from services.router.prompts import tokens
from services.router.prompts.calibration import LEAST_ANSWERS
from services.router.prompts.tokens import count
from services.router.providers.answer import LARGEST_PIECE_CHARACTERS
from services.router.providers.base import Piece, ProviderUsage
from services.router.schema.tools import ToolCallFragment
from tests.services.router.harness import PLENTY, Router, read
from tests.support.upstreams.openai import Reply, Upstream


def _cached(tokens: Any) -> dict[str, Any]:
    return {"prompt_tokens": 20, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": tokens}}


# What the provider said, what is charged (our own count stands for None), and where that comes from. A prompt is never
# empty, and what was delivered was not nothing.
USAGES: list[tuple[dict[str, Any] | None, tuple[int | None, int, int | None], int]] = [
    (None, (None, 0, None), USAGE_SOURCE_COUNTED),
    ({}, (None, 0, None), USAGE_SOURCE_COUNTED),
    ({"prompt_tokens": 20}, (20, 0, None), USAGE_SOURCE_COUNTED),
    ({"completion_tokens": 9}, (None, 0, 9), USAGE_SOURCE_COUNTED),
    ({"prompt_tokens": 0, "completion_tokens": 0}, (None, 0, None), USAGE_SOURCE_COUNTED),
    ({"prompt_tokens": 20, "completion_tokens": 0}, (20, 0, None), USAGE_SOURCE_COUNTED),
    ({"prompt_tokens": 0, "completion_tokens": 9}, (None, 0, 9), USAGE_SOURCE_COUNTED),
    ({"prompt_tokens": -20, "completion_tokens": 10**30}, (None, 0, None), USAGE_SOURCE_COUNTED),
    ({"prompt_tokens": 10**9 + 1, "completion_tokens": 10**9}, (None, 0, None), USAGE_SOURCE_COUNTED),
    # Beyond the window, and beyond the limit that the model was given.
    ({"prompt_tokens": 100_001, "completion_tokens": 9}, (None, 0, 9), USAGE_SOURCE_COUNTED),
    ({"prompt_tokens": 20, "completion_tokens": 15_065}, (20, 0, None), USAGE_SOURCE_COUNTED),
    # Thoughts that are not shown are paid for.
    ({"prompt_tokens": 20, "completion_tokens": 10_000}, (20, 0, 10_000), USAGE_SOURCE_PROVIDER),
    ({"prompt_tokens": True, "completion_tokens": "9"}, (None, 0, None), USAGE_SOURCE_COUNTED),
    ({"prompt_tokens": 20.5, "completion_tokens": [9]}, (None, 0, None), USAGE_SOURCE_COUNTED),
    ({"prompt_tokens": 20, "completion_tokens": 9}, (20, 0, 9), USAGE_SOURCE_PROVIDER),
    (_cached(4), (20, 4, 9), USAGE_SOURCE_PROVIDER),
    (_cached(21), (20, 20, 9), USAGE_SOURCE_PROVIDER),
    (_cached(-4), (20, 0, 9), USAGE_SOURCE_PROVIDER),
    (_cached("4"), (20, 0, 9), USAGE_SOURCE_PROVIDER),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("told", "charged", "source"), USAGES)
async def test_usage_is_the_providers_where_it_can_be_true_and_else_our_own_count(
    told: dict[str, Any] | None,
    charged: tuple[int | None, int, int | None],
    source: int,
    stream: bool,
    router: Router,
    upstream: Upstream,
) -> None:
    upstream.replies.append(Reply(usage=told))
    answer = await router.ask(stream=stream, max_tokens=10_000)
    assert answer.text == "Hello, world!"
    prompt_tokens, cached_tokens, completion_tokens = charged
    assert answer.finished.usage == Usage(
        prompt_tokens=prompt_tokens or answer.responses[-1].prompt_tokens,
        cached_tokens=cached_tokens,
        completion_tokens=completion_tokens or count("Hello, world!"),
    )
    assert answer.finished.usage_source == source


async def test_zero_is_believed_where_nothing_was_said(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=[], usage={"prompt_tokens": 20, "completion_tokens": 0}))
    finished = (await router.ask()).finished
    assert (finished.usage, finished.usage_source) == (Usage(prompt_tokens=20), USAGE_SOURCE_PROVIDER)


async def test_reasoning_is_counted_and_not_shown(router: Router, upstream: Upstream) -> None:
    thought = '{"choices":[{"delta":{"reasoning":"let me think about it"}}]}'
    end = '{"choices":[{"delta":{"content":"Yes"},"finish_reason":"stop"}]}'
    upstream.replies.append(Reply(events=[thought, end]))
    answer = await router.ask()
    assert answer.text == "Yes"
    assert answer.finished.usage.completion_tokens == count("let me think about it") + count("Yes")


@pytest.mark.parametrize("stream", [True, False])
async def test_our_own_count_never_charges_more_than_the_client_asked_for(
    stream: bool, router: Router, upstream: Upstream
) -> None:
    """A model keeps to `max_tokens` by a vocabulary of its own, by which an answer may be fewer tokens than by ours."""
    text = "Donaudampfschifffahrtsgesellschaft"
    assert count(text) > 3
    upstream.replies.append(Reply(contents=[text], usage=None))
    answer = await router.ask(stream=stream, max_tokens=3)
    assert answer.text == text
    assert answer.finished.usage.completion_tokens == 3
    assert max(response.output_tokens for response in answer.responses) == 3


ENDLESS_WORDS = [" rain"] * 6_000


@pytest.mark.parametrize("told", [None, {"prompt_tokens": 20, "completion_tokens": 1}])
@pytest.mark.parametrize("parts", [ENDLESS_WORDS, ["".join(ENDLESS_WORDS)]], ids=["in pieces", "at once"])
@pytest.mark.parametrize("stream", [True, False])
async def test_answer_that_goes_on_beyond_max_tokens_is_cut_and_no_more_than_these_are_charged(
    stream: bool, parts: list[str], told: dict[str, Any] | None, router: Router, upstream: Upstream
) -> None:
    upstream.replies.append(Reply(contents=parts, usage=told, at_once=True))
    answer = await router.ask(stream=stream, max_tokens=10)
    assert answer.finished.finish_reason == "length"
    assert answer.text.startswith(" rain rain")
    # Tokens that are twice as long as ours, half as many again, and 64.
    assert count(answer.text) == 94
    assert answer.finished.usage.completion_tokens == 10
    assert max(response.output_tokens for response in answer.responses) == 10
    assert answer.finished.usage_source == USAGE_SOURCE_COUNTED


async def test_model_that_is_cut_for_its_length_is_left(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=ENDLESS_WORDS, event_delay_s=0.001))
    answer = await router.ask(max_tokens=10)
    assert answer.finished.finish_reason == "length"
    await upstream.requests[0].ended.wait()
    assert upstream.requests[0].aborted


@pytest.mark.parametrize("stream", [True, False])
async def test_call_that_goes_on_beyond_max_tokens_is_cut_in_its_arguments(
    stream: bool, router: Router, upstream: Upstream
) -> None:
    arguments = '{"place": "' + "".join(ENDLESS_WORDS) + '"}'
    call = {"index": 0, "id": "call_a", "type": "function", "function": {"name": "now", "arguments": arguments}}
    upstream.replies.append(Reply(contents=[], tool_calls=[call], message_tool_calls=[call], usage=None))
    answer = await router.ask(
        stream=stream, max_tokens=10, tools_json=b'[{"type":"function","function":{"name":"now"}}]'
    )
    [cut] = answer.tool_calls
    assert answer.finished.finish_reason == "length"
    assert arguments.startswith(cut["arguments"])
    assert 60 < count(cut["arguments"]) <= 94
    assert answer.finished.usage.completion_tokens == 10


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("grant", [Grant(prompt_tokens=100, output_tokens=1_000), PLENTY], ids=["exact", "plenty"])
async def test_answer_of_tokens_twice_as_long_as_ours_is_whole_from_the_first_chat_on(
    stream: bool, grant: Grant, router: Router, upstream: Upstream
) -> None:
    said = Reply(contents=[" rain"] * 2_000, finish_reason="length", at_once=True)
    said.usage = {"prompt_tokens": 20, "completion_tokens": 1_000}
    upstream.replies.extend([said] * (LEAST_ANSWERS + 2))
    for _ in range(LEAST_ANSWERS + 2):
        answer = await router.ask(stream=stream, max_tokens=1_000, grant=grant)
        assert (answer.text, answer.finished.finish_reason) == (" rain" * 2_000, "length")
        # Neither more credit nor a higher charge.
        assert not answer.needs
        assert max(response.output_tokens for response in answer.responses) == 1_000
        assert answer.finished.usage.completion_tokens == 1_000


async def test_limit_of_a_model_whose_tokens_are_known_is_by_their_length(router: Router, upstream: Upstream) -> None:
    ordinary = Reply(contents=[" rain"] * 400, usage={"prompt_tokens": 20, "completion_tokens": 400}, at_once=True)
    endless = Reply(contents=ENDLESS_WORDS, usage=None, at_once=True)
    upstream.replies.extend([endless, *[ordinary] * LEAST_ANSWERS, endless])
    longest = [count((await router.ask(max_tokens=500)).text) for _ in range(LEAST_ANSWERS + 2)]
    assert longest == [3 * 500 + 64, *[400] * LEAST_ANSWERS, 500 + 250 + 64]


async def test_no_credit_is_asked_for_beyond_max_tokens(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=ENDLESS_WORDS, usage=None, at_once=True))
    answer = await read(router.open(max_tokens=10, grant=Grant(prompt_tokens=100, output_tokens=10)))
    assert not answer.needs
    assert answer.finished.usage.completion_tokens == 10


async def test_start_of_an_answer_is_told_once(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=ENDLESS_WORDS))
    answer = await router.ask()
    assert len(answer.responses) > 1
    assert [response for response in answer.responses if response.HasField("started")] == [answer.responses[0]]


async def test_answer_in_one_piece_says_how_much_it_is_by_the_providers_count(
    router: Router, upstream: Upstream
) -> None:
    upstream.replies.append(Reply(usage={"prompt_tokens": 20, "completion_tokens": 9}))
    answer = await router.ask(stream=False)
    assert [response.output_tokens for response in answer.responses] == [9]


@pytest.mark.parametrize("stream", [True, False])
async def test_call_of_nothing_in_particular_is_the_models_failure(
    stream: bool, router: Router, upstream: Upstream
) -> None:
    nameless = {"index": 0, "id": "call_a", "type": "function", "function": {"arguments": "{}"}}
    upstream.default_reply = Reply(contents=[], tool_calls=[nameless])
    with pytest.raises(LegatoError) as failure:
        await router.ask(stream=stream, tools_json=b'[{"type":"function","function":{"name":"now"}}]')
    assert failure.value.reason is Reason.UPSTREAM_FAILED


@pytest.mark.parametrize("stream", [True, False])
async def test_refusal_is_told_as_one_and_counted_as_any_answer(
    stream: bool, router: Router, upstream: Upstream
) -> None:
    upstream.replies.append(Reply(contents=[], refusals=["I", " cannot", " help."], usage=None))
    answer = await router.ask(stream=stream)
    assert answer.text == "I cannot help."
    assert all(response.refusal for response in answer.responses if response.contents)
    assert answer.finished.finish_reason == "stop"
    assert answer.finished.usage.completion_tokens == count("I cannot help.")
    upstream.replies.append(Reply(contents=["I can help."]))
    assert not any(response.refusal for response in (await router.ask(stream=stream)).responses)


BARE_CALL = {"index": 0, "id": "call_a", "type": "function", "function": {"name": "now", "arguments": ""}}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("finish_reason", "arguments"), [("tool_calls", "{}"), ("stop", "{}"), ("length", "")])
async def test_call_without_arguments_has_an_empty_object_unless_it_was_cut_off(
    finish_reason: str, arguments: str, stream: bool, router: Router, upstream: Upstream
) -> None:
    said = Reply(contents=[], tool_calls=[BARE_CALL], message_tool_calls=[BARE_CALL], finish_reason=finish_reason)
    said.usage = None
    upstream.replies.append(said)
    answer = await router.ask(stream=stream, tools_json=b'[{"type":"function","function":{"name":"now"}}]')
    assert answer.tool_calls == [{"id": "call_a", "name": "now", "arguments": arguments}]
    assert answer.finished.usage.completion_tokens == count("now") + count(arguments)


@pytest.mark.parametrize("stream", [True, False])
async def test_long_text_is_counted_and_sent_in_several_pieces(
    stream: bool, router: Router, upstream: Upstream
) -> None:
    # Of long words, so that it stays below its limit.
    text = (" " * 100 + "a") * 3_000
    assert count(text) < 10_000
    upstream.replies.append(Reply(contents=[text], usage=None))
    answer = await router.ask(stream=stream, max_tokens=10_000)
    assert answer.text == text
    assert max(len("".join(response.contents)) for response in answer.responses) == LARGEST_PIECE_CHARACTERS
    # Who leaves after the first of them pays for that one alone.
    counts = [response.output_tokens for response in answer.responses]
    assert counts == sorted(counts)
    assert counts[0] < count(text) // 2


class Caller:
    """Notes what it is sent, and in which form."""

    has_room = True

    def __init__(self) -> None:
        self.sent: list[ChatResponse | bytes] = []

    async def receive(self) -> ChatRequest:
        raise AssertionError

    async def send(self, response: ChatResponse) -> None:
        self.sent.append(response)

    def send_soon(self, response: ChatResponse) -> None:
        self.sent.append(response)

    def send_packed(self, payload: bytes) -> None:
        self.sent.append(payload)


@pytest.mark.parametrize("packs", [True, False])
async def test_only_ordinary_pieces_are_packed_and_only_for_callers_who_take_them(packs: bool) -> None:
    caller = Caller()
    relay = Relay(caller, packs=packs)
    relay.begin(Started(max_tokens=100), 5, TokenAllowance(caller, None), 200, is_covered_whole=True)
    await relay.pass_on(Piece(contents=["one"]))
    pieces = [
        Piece(contents=[" two", " three"]),
        Piece(contents=[" no"], refuses=True),
        Piece(contents=[" four"], hidden="thought"),
        Piece(tool_calls=[ToolCallFragment(0, "call_1", "look", "{}")]),
    ]
    assert all(relay.take(piece) for piece in pieces)
    ordinary, *others = caller.sent[1:]
    counted = count("one two three")
    expected = ChatResponse(contents=[" two", " three"], prompt_tokens=5, output_tokens=counted)
    assert (unpack_piece(ordinary) if isinstance(ordinary, bytes) else ordinary) == expected
    assert isinstance(ordinary, bytes) is packs
    assert all(isinstance(other, ChatResponse) for other in others)


async def test_citations_are_of_the_whole_text_however_it_was_sent_and_by_how_many_calls() -> None:
    caller, asked = Caller(), []

    def cite(text: str) -> list[Citation]:
        asked.append(text)
        return [Citation(start_index=5, end_index=8, title="manual.pdf")]

    relay = Relay(caller, packs=True, cite=cite)
    relay.begin(Started(max_tokens=100), 5, TokenAllowance(caller, None), 200)
    await relay.pass_on(Piece(contents=["See "]))
    assert relay.take(Piece(contents=["[", "1]"]))
    relay.begin_round(5, 90, 180)
    await relay.pass_on(Piece(contents=[", or"]))
    await relay.pass_on(Piece(contents=[" not."], finish_reason="stop", last=True))
    assert asked == ["See [1], or not."]
    ended = caller.sent[-1]
    assert isinstance(ended, ChatResponse)
    assert [cited.title for cited in ended.finished.citations] == ["manual.pdf"]
    assert ended.finished.usage.completion_tokens == count("See [1], or not.")


async def test_whole_answer_that_its_provider_has_counted_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its characters is one byte, so it cannot have more tokens than its model was allowed."""
    counted: list[str] = []
    monkeypatch.setattr(tokens, "counter", lambda: counted.append)
    caller = Caller()
    relay = Relay(caller)
    relay.begin(Started(max_tokens=256), 1, TokenAllowance(caller, None), 512, is_covered_whole=True)
    usage = ProviderUsage(prompt_tokens=1, completion_tokens=60, cached_tokens=0)
    await relay.pass_on(Piece(["a few words " * 20], finish_reason="stop", last=True, usage=usage))
    assert relay.finished is not None
    assert relay.finished.usage.completion_tokens == 60
    assert not counted


async def test_whole_answer_that_may_go_beyond_its_limit_is_counted_and_cut() -> None:
    caller = Caller()
    relay = Relay(caller)
    relay.begin(Started(max_tokens=10), 1, TokenAllowance(caller, None), 20, is_covered_whole=True)
    usage = ProviderUsage(prompt_tokens=1, completion_tokens=10, cached_tokens=0)
    await relay.pass_on(Piece(["ж, " * 200], finish_reason="stop", last=True, usage=usage))
    assert relay.went_beyond_limit
    assert relay.finished is not None
    assert relay.finished.finish_reason == "length"
