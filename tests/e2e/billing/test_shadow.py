"""A class whose chats are copied to another model: clients and the ledger see the one that answers."""

import openai

from tests.e2e.chats import QUESTION
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

NEW = """
[models.new]
provider = "upstream"
name = "new-model"
context_tokens = 100000
max_output_tokens = 10000
"""
SHADOW = 'shadow = { model = "new", percent = 100 }'


def test_copies_are_neither_delivered_nor_charged(
    service: Service, client: openai.OpenAI, account: str, upstream: Upstream
) -> None:
    def charge_of_a_chat() -> int:
        before = service.settled_balance_nanos(account)
        answer = client.chat.completions.create(model="mezzo", messages=QUESTION)
        assert answer.choices[0].message.content == "Hello, world!"
        return before - service.settled_balance_nanos(account)

    routes = service.read_routes()
    alone_nanos = charge_of_a_chat()
    copied = routes.replace("[classes.mezzo]\n", f"{NEW}\n[classes.mezzo]\n{SHADOW}\n")
    try:
        service.follow_routes(copied)
        # The first of two at the same server is the chat itself.
        upstream.requests.clear()
        upstream.replies.extend([Reply(), Reply(contents=["Something else"], usage={"prompt_tokens": 9_999})])
        assert charge_of_a_chat() == alone_nanos
        wait_until(lambda: len(upstream.requests) == 2)
        assert [request.json["model"] for request in upstream.requests] == ["upstream-model", "new-model"]
        wait_until(lambda: upstream.requests[1].answered)
    finally:
        service.follow_routes(routes)
    assert len(service.holds(account)) == 2
    assert service.audit() == []
