"""Notices about money, from a chat to the receiver of a webhook: edge, metering and auth are real processes."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from cli.connection import call_service
from legato_protos.auth.v1.notices_pb2 import AddWebhookRequest
from legato_protos.auth.v1.users_pb2 import ListAuditEventsRequest
from legato_protos.metering.v1.notices_pb2 import SetLowBalanceRequest
from legato_protos.metering.v1.spend_limits_pb2 import SetSpendLimitsRequest, SpendLimits
from tests.e2e.chats import WHOLE_CHAT
from tests.services.auth.notices.receiver import Receiver
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

PAGE = Path(__file__).parents[3] / "docs" / "notices.md"
CREDITS_NANOS = 5 * 10**9


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def documented_check() -> Callable[[str, str, bytes], bool]:
    """Returns the function that the page gives to owners."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    check: Callable[[str, str, bytes], bool] = names["is_genuine"]
    return check


def test_a_low_balance_and_a_spent_limit_arrive_signed_and_the_audit_log_tells_of_the_limit(
    service: Service, upstream: Upstream, client: openai.OpenAI, account: str, receiver: Receiver
) -> None:
    services = service.services
    made = call_service(services.notices.AddWebhook, AddWebhookRequest(account_id=account, url=f"{receiver.url}/hook"))
    receiver.secrets["/hook"] = made.secret
    # Whatever the first chat costs, the balance falls below it.
    threshold = SetLowBalanceRequest(account_id=account, threshold_nanos=CREDITS_NANOS)
    call_service(services.notice_thresholds.SetLowBalance, threshold)
    # Long enough to cost more than another could.
    upstream.replies.append(Reply(repeat=500, usage=None))
    client.chat.completions.create(**WHOLE_CHAT)
    balance_nanos = service.settled_balance_nanos(account)
    spent_nanos = CREDITS_NANOS - balance_nanos
    wait_until(lambda: len(receiver.bodies) >= 1)
    limits = SetSpendLimitsRequest(account_id=account, limits=SpendLimits(total_nanos=spent_nanos))
    call_service(services.spend_limits.SetSpendLimits, limits)
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(**WHOLE_CHAT, max_tokens=1)
    assert (refused.value.status_code, refused.value.code) == (402, "spend_limit_exceeded")
    # A notice comes at least once.
    wait_until(lambda: {body["kind"] for body in receiver.bodies} == {"balance.low", "spend_limit.reached"})
    by_kind = {body["kind"]: body for body in receiver.bodies}
    low, reached = by_kind["balance.low"], by_kind["spend_limit.reached"]
    assert low["data"]["balance_nanos"] == balance_nanos < low["data"]["threshold_nanos"] == CREDITS_NANOS
    expected = {"period": "total", "limit_nanos": spent_nanos, "spent_nanos": spent_nanos}
    assert reached["data"].items() >= expected.items()
    is_genuine = documented_check()
    for body, content, headers in zip(receiver.bodies, receiver.contents, receiver.headers, strict=True):
        assert is_genuine(made.secret, headers["legato-signature"], content)
        assert not is_genuine(made.secret, headers["legato-signature"], content + b" ")
        assert not is_genuine("whsec_other", headers["legato-signature"], content)
        assert headers["legato-notice-id"] == body["id"]
        assert headers["content-type"] == "application/json"
        assert (body["account_id"], body["key_id"]) == (account, None)
        assert set(body) == {"id", "kind", "created_at", "account_id", "key_id", "key_name", "summary", "data"}

    def changes() -> list[str]:
        listing = ListAuditEventsRequest(account_id=account)
        events = call_service(services.audit.ListAuditEvents, listing).events
        return [event.action for event in events if event.action.endswith(".changed")]

    wait_until(lambda: changes() == ["spend_limits.changed", "low_balance.changed"])
