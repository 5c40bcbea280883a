"""Keys, scopes, and changes that hold when the command returns."""

import math
import secrets
import sqlite3
from collections.abc import Callable

import openai
import pytest

from tests.e2e.chats import QUESTION
from tests.e2e.operations import metrics_of
from tests.e2e.raw_http import Answer, ask, post_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Upstream
from tests.support.waiting import wait_until

REFUSAL = {"message": "The API key is not valid.", "type": "authentication_error"}


def _models(service: Service, headers: dict[str, str]) -> Answer:
    return ask(service, "GET", "/v1/models", headers=headers)


def test_key_is_taken_from_both_headers(service: Service, api_key: str) -> None:
    assert _models(service, {"Authorization": f"Bearer {api_key}"}).status == 200
    assert _models(service, {"x-api-key": api_key}).status == 200
    assert _models(service, {"Authorization": f"bearer {api_key}"}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer sk-legato-unknown"},
        {"Authorization": "Basic dXNlcjpwYXNz"},
        {"x-api-key": ""},
        {"x-api-key": "x" * 5000},
        {"x-api-key": "\xff\xfe"},
    ],
)
def test_no_key_and_no_such_key_are_refused(service: Service, headers: dict[str, str]) -> None:
    answer = _models(service, headers)
    assert answer.status == 401
    assert answer.error["type"] == "authentication_error"
    assert answer.error["code"] == "invalid_api_key"


@pytest.mark.parametrize("scope", ["inference", "models", "usage"])
def test_key_does_what_its_scope_allows(service: Service, upstream: Upstream, account: str, scope: str) -> None:
    api_key = service.new_key(account, [scope])
    operations: dict[str, Callable[[], Answer]] = {
        "inference": lambda: post_chat(service, api_key, {"messages": QUESTION}),
        "models": lambda: ask(service, "GET", "/v1/models", api_key),
        "usage": lambda: ask(service, "GET", "/v1/usage", api_key),
    }
    for needed, operation in operations.items():
        answer = operation()
        assert answer.status == (200 if needed == scope else 403)
        if needed != scope:
            assert answer.error["type"] == "permission_error"


def test_revoked_key_is_refused_when_the_command_returns(service: Service, account: str) -> None:
    made = service.make_key(account)
    with openai.OpenAI(base_url=service.base_url, api_key=made.api_key, max_retries=0) as client:
        client.models.list()
        assert service.legato("keys", "revoke", made.key.key_id)["state"] == "revoked"
        with pytest.raises(openai.AuthenticationError) as raised:
            client.models.list()
    assert raised.value.type == REFUSAL["type"]
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["message"] == REFUSAL["message"]


def test_expired_key_is_refused_like_a_revoked_one(service: Service, account: str) -> None:
    made = service.make_key(account, expires_after_days=30)
    # Thirty days in one step: no request has come with this key yet.
    with sqlite3.connect(service.data / "auth.db", timeout=10) as database:
        moved = database.execute("UPDATE api_keys SET expires_at_us = 1 WHERE key_id = ?", (made.key.key_id,))
    database.close()
    assert moved.rowcount == 1
    answer = ask(service, "GET", "/v1/models", made.api_key)
    assert answer.status == 401
    assert answer.error == {**REFUSAL, "param": None, "code": "invalid_api_key"}
    [listed] = service.legato("keys", "list", "--account", account)
    assert listed["state"] == "expired"


def test_auto_follows_the_account_when_the_command_returns(
    service: Service, client: openai.OpenAI, account: str
) -> None:
    assert client.chat.completions.create(model="auto", messages=QUESTION).model == "forte"
    service.legato("accounts", "set", account, "--class", "mezzo")
    assert client.chat.completions.create(model="auto", messages=QUESTION).model == "mezzo"
    service.settled_balance_nanos(account)
    assert {row.class_id for row in service.usage(account, ["class"])} == {"forte", "mezzo"}


def test_new_rate_holds_when_the_command_returns(service: Service, client: openai.OpenAI, account: str) -> None:
    client.models.list()
    service.legato("accounts", "set", account, "--requests-per-minute", "1")
    client.models.list()
    with pytest.raises(openai.RateLimitError):
        client.models.list()
    service.legato("accounts", "set", account, "--requests-per-minute", "0")
    for _ in range(3):
        client.models.list()


def test_suspended_account_is_refused_when_the_command_returns_and_served_again_when_it_is_resumed(
    service: Service, upstream: Upstream, account: str
) -> None:
    good, revoked = service.make_key(account), service.make_key(account)
    service.legato("keys", "revoke", revoked.key.key_id)
    assert post_chat(service, good.api_key, {"messages": QUESTION}).status == 200
    assert service.legato("accounts", "suspend", account)["suspended_at"] is not None
    for answer in (
        post_chat(service, good.api_key, {"messages": QUESTION}),
        ask(service, "GET", "/v1/models", good.api_key),
    ):
        assert answer.status == 403
        assert (answer.error["type"], answer.error["code"]) == ("permission_error", "account_suspended")
    assert ask(service, "GET", "/v1/models", revoked.api_key).status == 401
    assert service.legato("accounts", "resume", account)["suspended_at"] is None
    assert post_chat(service, good.api_key, {"messages": QUESTION}).status == 200


def test_limit_of_one_key_holds_for_it_alone_when_the_command_returns(service: Service, account: str) -> None:
    limited, other = service.make_key(account), service.make_key(account)
    shown = service.legato("keys", "set", limited.key.key_id, "--requests-per-minute", "1")
    assert shown["requests_per_minute"] == 1
    assert [ask(service, "GET", "/v1/models", limited.api_key).status for _ in range(2)] == [200, 429]
    assert [ask(service, "GET", "/v1/models", other.api_key).status for _ in range(3)] == [200] * 3
    service.legato("keys", "set", limited.key.key_id, "--requests-per-minute", "0")
    assert [ask(service, "GET", "/v1/models", limited.api_key).status for _ in range(3)] == [200] * 3


def test_hour_of_the_last_use_is_listed(service: Service, account: str) -> None:
    used, unused = service.make_key(account), service.make_key(account)
    assert ask(service, "GET", "/v1/models", used.api_key).status == 200

    def last_uses() -> dict[str, str | None]:
        listed = service.legato("keys", "list", "--account", account)
        return {key["key_id"]: key["last_used_hour"] for key in listed}

    hour = wait_until(lambda: last_uses()[used.key.key_id])
    assert hour is not None
    assert hour.endswith(":00:00Z")
    assert last_uses()[unused.key.key_id] is None


def test_age_of_what_the_edge_knows_about_keys_is_served_to_prometheus(service: Service) -> None:
    [lag] = metrics_of(service, "edge")["auth_revocation_lag_seconds"].samples
    assert math.isfinite(lag.value)


def test_keys_live_through_a_change_of_the_pepper(shared_upstream: Upstream) -> None:
    with Service(shared_upstream) as service:
        account = service.new_account()
        old, forgotten = service.make_key(account), service.make_key(account)
        assert ask(service, "GET", "/v1/models", old.api_key).status == 200

        # A second version beside the first.
        peppers = service.data / "key-peppers"
        first, second = peppers.read_text().strip(), f"2:{secrets.token_hex(32)}"
        _restart_with(service, f"{first},{second}")
        new = service.make_key(account)
        for made in (old, forgotten, new):
            assert ask(service, "GET", "/v1/models", made.api_key).status == 200
        listed = service.legato("keys", "list", "--account", account)
        assert [key["pepper_version"] for key in listed] == [1, 1, 2]
        assert _keys_by_pepper(service) == {1: 2, 2: 1}
        service.legato("keys", "revoke", old.key.key_id)
        assert _keys_by_pepper(service) == {1: 1, 2: 1}

        # Taken away too early, the first takes its keys with it, and the operator is told.
        _restart_with(service, second)
        assert ask(service, "GET", "/v1/models", new.api_key).status == 200
        for made in (old, forgotten):
            assert ask(service, "GET", "/v1/models", made.api_key).status == 401
        assert "key.pepper_missing" in service.log_text()

        # No longer needed, it may go.
        service.legato("keys", "revoke", forgotten.key.key_id)
        assert _keys_by_pepper(service) == {2: 1}
        for secret in (old.api_key, forgotten.api_key, new.api_key, first.partition(":")[2], second.partition(":")[2]):
            assert secret not in service.log_text()


def _keys_by_pepper(service: Service) -> dict[int, int]:
    return {count["pepper_version"]: count["keys"] for count in service.legato("keys", "peppers")}


def _restart_with(service: Service, peppers: str) -> None:
    service.stop()
    (service.data / "key-peppers").write_text(f"{peppers}\n")
    service.start()
