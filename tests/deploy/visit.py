"""A client of a service that runs in containers: openai-python, as anybody would use it."""

import time
import urllib.error
import urllib.request

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
