"""Long chats at vendors that bill by prefix: nearly all that could be cached is, and every bill is the same."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import openai
import pytest

from tests.e2e.operations import LISTENING, metrics_of
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.anthropic import AnthropicReply
from tests.support.upstreams.gemini import GeminiReply
from tests.support.upstreams.openai import Reply
from tests.support.upstreams.prefix_billing import (
    PRICES,
    Bill,
    BillingAnthropic,
    BillingGemini,
    BillingUpstream,
    tokens_of,
)
from tests.support.waiting import wait_until

TURNS = 20
# Of all tokens that an earlier turn had at the same place.
LEAST_SHARE = 0.9

COST = ", ".join(f'{kind} = "{nanos / 10**9:.9f}"' for kind, nanos in PRICES.items())
PROVIDERS = {
    "mezzo": ("openai", "prompt_cache_key = true"),
    "forte": ("anthropic", 'version = "2026-10-21"'),
    "fortissimo": ("gemini", 'version = "v1"'),
}
ROUTES = "\n".join(
    f"""
[providers.{kind}]
kind = "{kind}"
base_url = "{kind.upper()}_URL"
zero_retention = true
api_key_env = "VENDOR_KEY"
{more}

[models.{kind}]
provider = "{kind}"
name = "{kind}-model"
context_tokens = 200000
max_output_tokens = 2000
cost = {{{{ {COST} }}}}

[classes.{class_id}]
models = ["{kind}"]
"""
    for class_id, (kind, more) in PROVIDERS.items()
)

GUIDANCE = {"role": "system", "content": "You are an agent. " + "Follow the rules of the house. " * 400}
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "read_page",
            "description": "Reads a page. " * 100,
            "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}},
        },
    }
]
# More calls and results than Anthropic looks back at.
MANY_CALLS = 12


class Vendors(NamedTuple):
    mezzo: BillingUpstream
    forte: BillingAnthropic
    fortissimo: BillingGemini

    def of(self, class_id: str) -> "BillingUpstream | BillingAnthropic | BillingGemini":
        vendor: BillingUpstream | BillingAnthropic | BillingGemini = getattr(self, class_id)
        return vendor


@pytest.fixture(scope="module")
def vendors() -> Iterator[Vendors]:
    made = Vendors(BillingUpstream(), BillingAnthropic(), BillingGemini())
    with UpstreamThread(made.mezzo), UpstreamThread(made.forte), UpstreamThread(made.fortissimo):
        yield made


@pytest.fixture(scope="module")
def caching_service(vendors: Vendors) -> Iterator[Service]:
    routes = ROUTES
    for class_id, (kind, _) in PROVIDERS.items():
        routes = routes.replace(f"{kind.upper()}_URL", vendors.of(class_id).base_url)
    settings = {"VENDOR_KEY": "secret", "LEGATO_ATTACHMENTS": "true", "LEGATO_MEMORY": "true", **LISTENING}
    with Service(vendors.mezzo, settings, routes=routes) as service:
        yield service


class LongChat:
    """A chat of many turns, of an account that has no other."""

    def __init__(self, service: Service, class_id: str, vendor: Any) -> None:
        self.service, self.class_id, self.vendor = service, class_id, vendor
        self.account = service.new_account()
        self.messages: list[Any] = [GUIDANCE]
        self.usage = [0, 0, 0]
        self.requests_before, self.metrics_before = len(vendor.requests), self.metrics()
        vendor.bill = Bill()
        self._client = openai.OpenAI(
            base_url=service.base_url,
            api_key=service.new_key(self.account),
            max_retries=0,
            http_client=openai.DefaultHttpxClient(verify=False),
        )

    def say(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def ask(self, reply: Reply, *, stream: bool, **fields: Any) -> Any:
        """Asks for the next turn, and adds the answer to the conversation."""
        self.vendor.replies.append(reply)
        asked = {"model": self.class_id, "messages": self.messages, **fields}
        if stream:
            with self._client.chat.completions.stream(**asked) as events:
                completion: Any = events.get_final_completion()
        else:
            completion = self._client.chat.completions.create(**asked)
        usage, message = completion.usage, completion.choices[0].message
        counts = (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens)
        self.usage = [total + count for total, count in zip(self.usage, counts, strict=True)]
        self.messages.append(message.model_dump(exclude_none=True))
        return message

    def metrics(self) -> dict[tuple[str, str], float]:
        """What the router counts for this model, by metric and kind."""
        families = metrics_of(self.service, "router")
        return {
            (name, sample.labels["kind"]): sample.value
            for name in ("legato_upstream_tokens", "legato_upstream_cost_nanodollars")
            for sample in families[name].samples
            if sample.name == f"{name}_total" and sample.labels["gen_ai_provider_name"] == PROVIDERS[self.class_id][0]
        }

    def assert_cached(self, lasting_tokens: Sequence[int]) -> None:
        """Every turn has cached what it could be: the lasting part of the turn before. With keys, the first turn went
        to the server of all first turns with these instructions, so the third is the first to find one before it."""
        assert len(lasting_tokens) == TURNS
        since = 2 if self.class_id == "mezzo" else 1
        cached_tokens = self.vendor.bill.cached_tokens[since:]
        for cached, could_be in zip(cached_tokens, lasting_tokens[since - 1 :], strict=False):
            assert cached >= LEAST_SHARE * could_be

    def assert_books_agree(self) -> None:
        """The vendor's bill, what the client was told, what the router counted and the ledger are the same."""
        bill: Bill = self.vendor.bill
        prompt_tokens = sum(bill.prompt_tokens)
        assert self.usage == [prompt_tokens, bill.tokens["cached_input"], bill.tokens["output"]]
        now = self.metrics()
        counted = {key: value - self.metrics_before[key] for key, value in now.items()}
        for kind, tokens in bill.tokens.items():
            assert counted["legato_upstream_tokens", kind] == tokens, kind
            millionths = bill.millionths_of_nanos[kind]
            assert counted["legato_upstream_cost_nanodollars", kind] * 10**6 == millionths, kind
        wait_until(lambda: not self.service.balance(self.account).held_nanos)
        [row] = self.service.usage(self.account)
        used = row.usage
        assert [used.prompt_tokens, used.cached_tokens, used.completion_tokens] == self.usage

    def close(self) -> None:
        self._client.close()


@pytest.fixture(params=list(PROVIDERS))
def chat(request: pytest.FixtureRequest, caching_service: Service, vendors: Vendors) -> Iterator[LongChat]:
    chat = LongChat(caching_service, request.param, vendors.of(request.param))
    yield chat
    chat.close()


def reply_of(class_id: str, text: str, calls: int = 0) -> Reply:
    arguments = [{"page": number} for number in range(calls)]
    if class_id == "forte":
        written = [("read_page", [json.dumps(each)]) for each in arguments]
        return AnthropicReply(contents=[text], calls=written, finish_reason="tool_use" if calls else "end_turn")
    if class_id == "fortissimo":
        return GeminiReply(contents=[text], calls=[("read_page", each) for each in arguments])
    tool_calls = [
        {
            "index": number,
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "read_page", "arguments": json.dumps(each)},
        }
        for number, each in enumerate(arguments)
    ]
    return Reply(
        contents=[text],
        tool_calls=tool_calls,
        message_tool_calls=tool_calls,
        finish_reason="tool_calls" if calls else "stop",
    )


def test_chat_with_tools_is_read_from_the_cache(chat: LongChat) -> None:
    chat.say("Read the book, and tell me about it.")
    for turn in range(TURNS):
        calls = 0 if turn % 5 == 4 else MANY_CALLS if turn == 7 else 2
        message = chat.ask(
            reply_of(chat.class_id, f"Turn {turn}: " + "let me see. " * 10, calls), stream=turn % 2 == 0, tools=TOOLS
        )
        for number, call in enumerate(message.tool_calls or ()):
            result = f"Page {turn}.{number}: " + f"It says {turn * number}. " * 30
            chat.messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not message.tool_calls:
            chat.say(f"And chapter {turn}?")
    # All of a prompt is in the next one, too.
    chat.assert_cached(chat.vendor.bill.prompt_tokens)
    chat.assert_books_agree()


def test_chat_with_documents_is_read_from_the_cache(chat: LongChat, tmp_path: Any) -> None:
    chapters = [f"The chapter about the word{turn} says: " + f"word{turn} is {turn}. " * 40 for turn in range(TURNS)]
    document = tmp_path / "book.txt"
    document.write_text("\n\n".join(chapters))
    chat.service.legato("attachments", "add", chat.account, str(document))
    chat.service.legato("memory", "add", chat.account, "I live in Ottawa.")
    context_tokens = []
    for turn in range(TURNS):
        chat.say(f"What does the chapter about word{turn} say?")
        chat.ask(reply_of(chat.class_id, f"It says {turn} [1]. " * 10), stream=turn % 2 == 0)
        sent = chat.vendor.requests[-1].body.decode()
        passages = re.search(r"These passages of.*?</passages>", sent)
        assert passages is not None
        assert f"word{turn} is {turn}." in passages[0]
        context_tokens.append(tokens_of(passages[0]))
    # All of a prompt but its passages is in the next one, too.
    prompt_tokens = chat.vendor.bill.prompt_tokens
    chat.assert_cached([prompt - context for prompt, context in zip(prompt_tokens, context_tokens, strict=True)])
    chat.assert_books_agree()


def test_single_questions_with_one_system_prompt_meet_one_cache(caching_service: Service, vendors: Vendors) -> None:
    for class_id in PROVIDERS:
        chat = LongChat(caching_service, class_id, vendors.of(class_id))
        questions = 12
        for number in range(questions):
            chat.messages[1:] = []
            chat.say(f"What is {number} and {number}?")
            chat.ask(reply_of(class_id, f"{2 * number}."), stream=number % 2 == 0, tools=TOOLS)
        prompts, cached = chat.vendor.bill.prompt_tokens, chat.vendor.bill.cached_tokens
        assert len(cached) == questions
        assert all(read >= LEAST_SHARE * prompt for read, prompt in zip(cached[1:], prompts[1:], strict=True)), class_id
        chat.assert_books_agree()
        chat.close()


def test_key_of_a_cache_says_nothing_and_is_of_its_account(caching_service: Service, vendors: Vendors) -> None:
    keys: list[str] = []
    for own in ({}, {"prompt_cache_key": "my-agent"}):
        for _ in range(2):
            chat = LongChat(caching_service, "mezzo", vendors.mezzo)
            for _ in range(3):
                chat.say("Hello!")
                chat.ask(Reply(), stream=False, **own)
            chat.close()
            first, second, third = (request.json["prompt_cache_key"] for request in vendors.mezzo.requests[-3:])
            assert second == third
            # What a client names is one key from the first turn on.
            assert (first == second) == bool(own)
            keys += {first, second}
    assert len(set(keys)) == 6
    assert all(re.fullmatch("[0-9a-f]{32}", key) for key in keys)


def test_marks_of_the_client_reach_the_vendor_and_more_than_four_are_refused(
    caching_service: Service, vendors: Vendors
) -> None:
    chat = LongChat(caching_service, "forte", vendors.forte)
    kept_long, kept = {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}
    tools = [{**TOOLS[0], "cache_control": kept_long}]

    def marked(text: str, mark: dict[str, str]) -> list[dict[str, Any]]:
        return [{"type": "text", "text": text, "cache_control": mark}]

    chat.messages = [{"role": "system", "content": marked(GUIDANCE["content"], kept_long)}]
    chat.say("Read the book.")
    [call] = chat.ask(reply_of("forte", "Well.", 1), stream=False, tools=tools).tool_calls
    chat.messages.append({"role": "tool", "tool_call_id": call.id, "content": marked("It says 7.", kept)})
    chat.say("And?")
    chat.ask(reply_of("forte", "Seven."), stream=False, tools=tools)
    request = vendors.forte.requests[-1].json
    result, question = request["messages"][-1]["content"]
    marks = [block.get("cache_control") for block in (request["tools"][0], request["system"][-1], result, question)]
    # The last is ours.
    assert marks == [kept_long, kept_long, kept, kept]
    assert chat.vendor.bill.tokens["cache_write_1h"] > 0
    chat.assert_books_agree()
    chat.messages.append({"role": "user", "content": marked("And?", kept) + marked("Well?", kept)})
    with pytest.raises(openai.BadRequestError, match="at most 4 cache_control") as refusal:
        chat.ask(reply_of("forte", "No."), stream=False, tools=tools)
    assert refusal.value.param == "messages"
    vendors.forte.replies.clear()
    chat.close()
