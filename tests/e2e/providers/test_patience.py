"""Models that take long, and clients that do."""

from collections.abc import Iterator

import openai
import pytest

from services.chassis.http.response_writer import COMMENT
from services.chassis.money import parse_usd
from tests.e2e.chats import CHAT, QUESTION, RAIN
from tests.e2e.raw_http import OpenChat, post_chat
from tests.e2e.rules import check_books, read_rules
from tests.support.service import Service, wait_for_requests
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

RULES = read_rules("What happened")
# More than the network between takes without anybody reading.
MUCH = 100_000


@pytest.fixture(scope="module")
def impatient(shared_upstream: Upstream) -> Iterator[Service]:
    """A service that takes a moment for a long time."""
    with Service(shared_upstream, {"LEGATO_KEEPALIVE_S": "0.1", "LEGATO_STALLED_READER_S": "1"}) as service:
        yield service


def test_client_is_not_disturbed_by_signs_of_life(impatient: Service, upstream: Upstream) -> None:
    upstream.replies += [Reply(contents=RAIN, delay_s=1), Reply(contents=RAIN, delay_s=1)]
    api_key = impatient.new_key(impatient.new_account())
    with openai.OpenAI(base_url=impatient.base_url, api_key=api_key, max_retries=0) as client:
        chunks = list(client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "It rains."

    assert post_chat(impatient, api_key, CHAT).body.startswith(COMMENT)


def test_end_of_a_request_that_fails_after_signs_of_life(impatient: Service, upstream: Upstream) -> None:
    account = impatient.new_account()
    upstream.replies += [Reply(status=500, delay_s=1)] * 2

    answer = post_chat(impatient, impatient.new_key(account), CHAT)

    assert answer.status == 200
    *comments, error, rest = answer.body.split(b"\n\n")
    assert set(comments) == {COMMENT.rstrip()}
    assert error.startswith(b'data: {"error":{')
    assert rest == b""
    check_books(impatient, account, parse_usd("5.00"), RULES["Upstream error after a long silence"], None)


# A large prompt takes a way of its own to the router.
@pytest.mark.parametrize("prompt_bytes", [10, pytest.param(400_000, marks=pytest.mark.long)])
def test_reader_that_stops_holds_up_its_own_model_alone_and_is_cut_off(
    impatient: Service, upstream: Upstream, prompt_bytes: int
) -> None:
    account = impatient.new_account()
    messages = [{"role": "user", "content": "x" * prompt_bytes}]
    upstream.replies.append(Reply(contents=[" rain"], repeat=MUCH))
    stopped = OpenChat(
        impatient,
        impatient.new_key(account),
        {"model": "mezzo", "messages": messages, "stream": True},
        receive_buffer_bytes=4096,
    )
    request = wait_for_requests(upstream)

    assert post_chat(impatient, impatient.new_key(impatient.new_account()), CHAT).body.endswith(b"data: [DONE]\n\n")

    # Long before it would be by default.
    wait_until(lambda: request.aborted, timeout_s=50)
    assert request.writes < MUCH
    charged_nanos = parse_usd("5.00") - impatient.settled_balance_nanos(account)
    [row], [hold] = impatient.usage(account), impatient.holds(account)
    assert hold.end == "client_gone"
    assert 0 < row.usage.completion_tokens <= request.writes
    assert charged_nanos == 100 * row.usage.prompt_tokens + 210 * row.usage.completion_tokens
    stopped.leave()
    assert impatient.audit() == []
