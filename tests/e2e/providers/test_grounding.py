"""Notes, documents and searches, from the command line to the answer, with a model that reads what it is given."""

import json
import re
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessage

from cli.commands.account.attachments import add_attachment
from cli.connection import call_service
from cli.output import Bar
from legato_protos.auth.v1.auth_pb2 import UpdateAccountRequest
from legato_protos.router.v1.grounding_pb2 import AddNoteRequest
from tests.e2e.raw_http import post_chat
from tests.e2e.rules import read_rules
from tests.e2e.transports import OverHttp, OverRpc
from tests.support.outside.searx import Searx, SearxThread, page
from tests.support.pdfs import make_pdf
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Recorded, Reply, Upstream

PRICE_NANOS = {"prompt": 100, "completion": 210}
DOLLARS_NANOS = 5 * 10**9


class ReadingUpstream(Upstream):
    """Knows nothing but what is in its prompt. What the user says behind "find " it looks for."""

    def reply_to(self, recorded: Recorded) -> Reply:
        messages = recorded.json["messages"]
        last = messages[-1]
        if last["role"] == "tool":
            found = re.search(r'<result number="(\d+)"[^>]*>(.*)</result>', last["content"])
            return _say(f"{found[2]} [{found[1]}]" if found else "It is not known.", 300)
        # Passages stand behind the question.
        question, _, passages = last["content"].partition("\n\n")
        if question.startswith("find ") and "tools" in recorded.json:
            arguments = json.dumps({"query": question.removeprefix("find ")})
            call = {"index": 0, "id": "call_1", "function": {"name": "search_web", "arguments": arguments}}
            return Reply(
                contents=[],
                tool_calls=[call],
                message_tool_calls=[call],
                finish_reason="tool_calls",
                usage={"prompt_tokens": 100, "completion_tokens": 20},
            )
        given = "\n".join(message["content"] for message in messages if message["role"] == "system")
        passage = re.search(r'<passage number="(\d+)"[^>]*>\n([^<]*opens with[^<]*)\n</passage>', passages)
        note = re.search(r"<note>(.*)</note>", given)
        if passage:
            return _say(f"{passage[2]} [{passage[1]}]", 200)
        return _say(note[1] if note else "I do not know.", 200)


def _say(text: str, prompt_tokens: int) -> Reply:
    return Reply(contents=[text], usage={"prompt_tokens": prompt_tokens, "completion_tokens": 10})


@dataclass(frozen=True)
class GroundedServiceHarness:
    service: Service
    upstream: Upstream
    searx: Searx


@pytest.fixture(scope="module")
def harness() -> Iterator[GroundedServiceHarness]:
    """Runs at debug level, so that all a log could hold is written."""
    with UpstreamThread(ReadingUpstream()) as upstream, SearxThread() as searx:
        settings = {
            "LEGATO_DEBUG": "1",
            "LEGATO_MEMORY": "true",
            "LEGATO_ATTACHMENTS": "true",
            "LEGATO_SEARCH_URL": searx.base_url,
        }
        with Service(upstream, settings) as service:
            yield GroundedServiceHarness(service, upstream, searx)


def chat(harness: GroundedServiceHarness, api_key: str, question: str, *, stream: bool) -> ChatCompletionMessage:
    """Chats through OpenAI's client, which puts a stream together by itself."""
    with openai.OpenAI(base_url=harness.service.base_url, api_key=api_key, max_retries=0) as client:
        messages: Any = [{"role": "user", "content": question}]
        if not stream:
            return client.chat.completions.create(model="mezzo", messages=messages).choices[0].message
        with client.chat.completions.stream(model="mezzo", messages=messages) as events:
            return events.get_final_completion().choices[0].message


def cited(message: ChatCompletionMessage) -> list[tuple[str, str, str]]:
    """Each with the place in the text that it is for."""
    return [
        (
            (message.content or "")[annotation.url_citation.start_index : annotation.url_citation.end_index],
            annotation.url_citation.title,
            annotation.url_citation.url,
        )
        for annotation in message.annotations or ()
    ]


@pytest.fixture
def account(harness: GroundedServiceHarness) -> str:
    return harness.service.new_account()


@pytest.fixture
def api_key(harness: GroundedServiceHarness, account: str) -> str:
    return harness.service.new_key(account)


def switch(harness: GroundedServiceHarness, account: str, *, attachments: bool) -> None:
    call_service(
        harness.service.services.accounts.UpdateAccount,
        UpdateAccountRequest(account_id=account, attachments=attachments),
    )


def test_fact_from_an_attached_pdf_is_answered_with_a_citation(
    harness: GroundedServiceHarness, account: str, api_key: str, tmp_path: Path
) -> None:
    file = tmp_path / "safe.pdf"
    file.write_bytes(make_pdf(["Nothing of interest.", "The old safe opens with 7319."]))
    attachment = harness.service.legato("attachments", "add", account, str(file))
    assert (attachment["kind"], attachment["pages"]) == ("pdf", 2)
    for stream in (False, True):
        message = chat(harness, api_key, "How do I open the safe?", stream=stream)
        assert message.content == "The old safe opens with 7319. [1]"
        url = f"urn:legato:attachment:{attachment['attachment_id']}#page=2"
        assert cited(message) == [("[1]", "safe.pdf, page 2", url)]
    switch(harness, account, attachments=False)
    assert chat(harness, api_key, "How do I open the safe?", stream=False).content == "I do not know."
    switch(harness, account, attachments=True)
    harness.service.legato("attachments", "remove", account, attachment["attachment_id"])
    assert chat(harness, api_key, "How do I open the safe?", stream=False).content == "I do not know."


@pytest.mark.parametrize("stream", [False, True])
def test_chat_that_searches_is_one_answer_and_one_charge(
    stream: bool, harness: GroundedServiceHarness, account: str, api_key: str
) -> None:
    harness.searx.results = [page(1, content="The pump is blue.")]
    message = chat(harness, api_key, "find the colour of the pump", stream=stream)
    assert message.content == "The pump is blue. [1]"
    assert message.tool_calls in (None, [])
    assert cited(message) == [("[1]", "Page 1", "https://page1.test/")]
    cost_nanos = 400 * PRICE_NANOS["prompt"] + 30 * PRICE_NANOS["completion"]
    assert harness.service.settled_balance_nanos(account) == DOLLARS_NANOS - cost_nanos
    assert [hold.request_id for hold in harness.service.holds(account)] != []
    assert harness.service.audit() == []


@pytest.mark.parametrize("stream", [False, True])
def test_sources_are_cited_alike_over_grpc(stream: bool, harness: GroundedServiceHarness, api_key: str) -> None:
    harness.searx.results = [page(1, content="The pump is blue.")]
    question = {"model": "mezzo", "messages": [{"role": "user", "content": "find the colour of the pump"}]}
    with OverRpc(harness.service) as over_rpc:
        told = [each.ask(api_key, {**question, "stream": stream}) for each in (OverHttp(harness.service), over_rpc)]
    assert told[0] == told[1]
    assert [citation.url for citation in told[1].citations] == ["https://page1.test/"]


@pytest.mark.parametrize("stream", [False, True])
def test_search_round_is_charged_where_there_is_no_credit_for_the_answer(
    stream: bool, harness: GroundedServiceHarness
) -> None:
    rule = read_rules("What happened")["Credit spent before a second round"]
    harness.searx.results = [page(number, content=f"The pump is blue. {number} " * 200) for number in range(1, 10)]
    account = harness.service.new_account(credits="0.00006")
    api_key = harness.service.new_key(account)
    question = {"model": "mezzo", "messages": [{"role": "user", "content": "find the pump"}], "stream": stream}
    asked = len(harness.upstream.requests)
    answer = post_chat(harness.service, api_key, question)
    assert (answer.status, len(harness.upstream.requests)) == (200, asked + 1)
    ends = [event["choices"][0]["finish_reason"] for event in answer.events[:-2]] if stream else []
    assert (ends[-1] if stream else answer.json["choices"][0]["finish_reason"]) == "length"
    harness.service.settled_balance_nanos(account)
    [hold], [entry] = harness.service.holds(account), harness.service.entries(account)
    assert (hold.end, hold.basis) == (rule.end, rule.basis)
    cost_nanos = entry.prompt_tokens * PRICE_NANOS["prompt"] + entry.completion_tokens * PRICE_NANOS["completion"]
    assert entry.completion_tokens > 5
    assert (entry.customer_nanos, entry.loss_nanos) == (-cost_nanos, 0)
    assert harness.service.audit() == []


def test_client_that_names_a_tool_choice_is_answered_without_a_search(
    harness: GroundedServiceHarness, api_key: str
) -> None:
    harness.searx.results = [page(1, content="Blue.")]
    question = [{"role": "user", "content": "find it"}]
    answer = post_chat(harness.service, api_key, {"messages": question, "tool_choice": "none"}).json
    assert answer["choices"][0]["message"]["content"] == "I do not know."
    assert not {"tools", "tool_choice"}.intersection(harness.upstream.requests[-1].json)


def test_stream_with_a_search_has_the_documented_sequence(harness: GroundedServiceHarness, api_key: str) -> None:
    harness.searx.results = [page(1, content="Blue.")]
    question = [{"role": "user", "content": "find it"}]
    *chunks, usage, done = post_chat(harness.service, api_key, {"messages": question, "stream": True}).events
    assert done == "[DONE]"
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 430)
    deltas = [chunk["choices"][0] for chunk in chunks]
    assert deltas[0]["delta"] == {"role": "assistant", "content": ""}
    assert [delta["finish_reason"] for delta in deltas] == [None] * (len(deltas) - 1) + ["stop"]
    assert not any("tool_calls" in delta["delta"] for delta in deltas)
    assert list(deltas[-2]["delta"]) == ["annotations"]


def test_no_word_of_what_is_kept_or_searched_is_written_in_clear(
    harness: GroundedServiceHarness, account: str, api_key: str, tmp_path: Path
) -> None:
    words = {place: f"canary{secrets.token_hex(8)}" for place in ("note", "name", "page", "query", "title", "snippet")}
    services = harness.service.services
    call_service(
        services.grounding.AddNote, AddNoteRequest(account_id=account, text=f"My cat is called {words['note']}.")
    )
    assert words["note"] in str(harness.service.legato("memory", "list", account))
    file = tmp_path / f"{words['name']}.pdf"
    file.write_bytes(make_pdf([f"The {words['page']} opens with a key."]))
    assert add_attachment(services, account, file, Bar(sys.stderr)).name == file.name
    harness.searx.results = [page(1, title=words["title"], content=words["snippet"])]
    for stream in (False, True):
        assert words["page"] in str(chat(harness, api_key, f"What opens the {words['page']}?", stream=stream).content)
        assert words["snippet"] in str(chat(harness, api_key, f"find {words['query']}", stream=stream).content)
    assert words["note"] in str(harness.upstream.requests[-1].json["messages"])
    harness.service.settled_balance_nanos(account)
    written = {path.name: path.read_bytes() for path in harness.service.files()}
    assert {"router.db", "router.log", "grounding-key"} <= written.keys()
    everything = b"\n".join(written.values()).lower()
    assert account.encode() in everything
    assert [place for place, word in words.items() if word.encode() in everything] == []
    key = written["grounding-key"].strip().partition(b":")[2]
    assert not [name for name, data in written.items() if key in data and name != "grounding-key"]
