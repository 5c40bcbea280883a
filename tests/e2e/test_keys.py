"""Keys, scopes, and changes that hold when the command returns."""

import sqlite3
from collections.abc import Callable

import openai
import pytest

from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import Answer, ask, post_chat
from tests.service import Service
from tests.upstream import Upstream

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
        {"Authorization": "Bearer sk-legato-nobody"},
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
    # Thirty days in one step: nobody has asked with this key yet.
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
