"""A client of a service that runs in containers: openai-python, as anybody would use it."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import openai
import pytest

WAIT_TIMEOUT_S = 180.0
QUESTION = "Say hello in one short sentence."


def wait_until_served(base_url: str) -> None:
    """Waits until an edge that knows its services refuses a missing key."""
    end = time.monotonic() + WAIT_TIMEOUT_S
    while True:
        try:
            urllib.request.urlopen(f"{base_url}/models", timeout=5)
        except urllib.error.HTTPError as refusal:
            if refusal.code == 401:
                return
        except OSError:
            pass
        assert time.monotonic() < end, f"{base_url} did not answer within {WAIT_TIMEOUT_S:.0f} s"
        time.sleep(1)


def visit(base_url: str, key: str) -> None:
    client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=5, timeout=120)
    print("models:", ", ".join(model.id for model in client.models.list()))
    whole = client.chat.completions.create(
        model="auto", max_tokens=24, messages=[{"role": "user", "content": QUESTION}]
    )
    assert whole.choices[0].message.content
    assert whole.usage is not None
    print(f"whole:  {whole.model}, {whole.choices[0].finish_reason}, {whole.usage.completion_tokens} tokens:", end=" ")
    print(repr(whole.choices[0].message.content))
    pieces, tokens, finish = [], 0, None
    stream = client.chat.completions.create(
        model="mezzo", max_tokens=24, stream=True, messages=[{"role": "user", "content": QUESTION}]
    )
    for chunk in stream:
        for choice in chunk.choices:
            pieces.append(choice.delta.content or "")
            finish = choice.finish_reason or finish
        tokens = chunk.usage.completion_tokens if chunk.usage else tokens
    assert finish in ("stop", "length")
    assert tokens > 0
    print(f"stream: {len(pieces)} chunks, {finish}, {tokens} tokens: {''.join(pieces)!r}")
    with pytest.raises(openai.AuthenticationError) as refused:
        openai.OpenAI(base_url=base_url, api_key="sk-legato-wrong", max_retries=0).models.list()
    print("wrong key:", refused.value.status_code)


class Visitor:
    """A client with an account, before and after an upgrade."""

    def __init__(self, legato: Callable[..., Any], base_url: str) -> None:
        """Takes what runs the owner's commands."""
        self._legato = legato
        self._base_url = base_url
        self._account_id = legato("accounts", "create", "visitor", "--credits", "5.00")["account_id"]
        self.key: str = legato("keys", "create", "--account", self._account_id)["api_key"]

    def chat(self) -> None:
        visit(self._base_url, self.key)

    def check_upgrade(self) -> None:
        """Called as soon as another version serves: what was settled before must be what it finds."""
        before = self._settled_balance
        assert self._read_balance() == before, before
        self.chat()
        after = self.settle()
        assert Decimal(after["balance_usd"]) < Decimal(before["balance_usd"]), (before, after)
        audit = self._legato("audit")
        print("audit:", audit)
        assert audit["violations"] == []

    def settle(self) -> dict[str, Any]:
        """Waits until every chat is charged, and keeps the balance to compare with."""
        end = time.monotonic() + WAIT_TIMEOUT_S
        while (balance := self._read_balance())["held_usd"] != "0.00":
            assert time.monotonic() < end, balance
            time.sleep(1)
        print("balance:", balance)
        self._settled_balance = balance
        return balance

    def _read_balance(self) -> dict[str, Any]:
        balance: dict[str, Any] = self._legato("credits", "balance", self._account_id)
        return balance


def visit_while_a_service_is_away(base_url: str, key: str) -> None:
    """The refusal is one that clients understand, whatever stands before the edges."""
    client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60)
    with pytest.raises(openai.InternalServerError) as refused:
        client.chat.completions.create(model="auto", messages=[{"role": "user", "content": QUESTION}])
    assert (refused.value.status_code, refused.value.type) == (503, "api_error")
    print("a service is away:", refused.value.status_code, refused.value.body)


def visit_console(origin: str, host: str) -> None:
    """The page that everybody sees first; `host` is what browsers call the console."""
    request = urllib.request.Request(f"{origin}/sign-in", headers={"Host": host})
    with urllib.request.urlopen(request, timeout=60) as page:
        assert b"<form" in page.read()
    print("console:", host, page.status)
