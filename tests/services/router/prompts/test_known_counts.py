"""Counts of long texts are remembered, and their texts are not."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.router.prompts import tokens
from services.router.prompts.known_counts import LEAST_BYTES, KnownCounts, known_counts
from services.router.schema.messages import read_messages

CANARY = "zanzibar-canary-4711 "


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """Every test begins with a process that has counted nothing."""
    known_counts.cache_clear()
    yield
    known_counts.cache_clear()


def digest_of(known: KnownCounts, text: bytes) -> bytes:
    digest = known.begin_digest()
    digest.update(text)
    return digest.digest()


async def count(*messages: object, values: tuple[bytes, ...] = ()) -> int:
    parsed = await read_messages(json.dumps(messages).encode())
    return await tokens.count_request(parsed.parsed, values)


def long_message(text: str) -> dict[str, object]:
    return {"role": "user", "content": text * (1 + LEAST_BYTES // len(text))}


_TEXTS = st.text(min_size=1, max_size=40).map(lambda text: long_message(text)["content"])
_MESSAGES = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, _TEXTS),
    st.builds(lambda text: {"role": "user", "content": [{"type": "text", "text": text}]}, _TEXTS),
    st.builds(
        lambda text: {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "find", "arguments": text}}],
        },
        _TEXTS,
    ),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(_MESSAGES, min_size=1, max_size=4), tools=_TEXTS)
async def test_remembered_count_is_that_of_a_fresh_count(messages: list[dict[str, object]], tools: str) -> None:
    values = (json.dumps([{"description": tools}]).encode(),)
    known_counts.cache_clear()
    fresh = await count(*messages, values=values)
    assert await count(*messages, values=values) == fresh
    assert await count(messages[-1]) <= fresh


async def test_a_turn_has_only_its_new_texts_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    count_short = tokens.counter()

    def watched(text: str) -> int:
        counted.append(text)
        return count_short(text)

    monkeypatch.setattr(tokens, "counter", lambda: watched)
    first, second = long_message("First words. "), long_message("Second words. ")
    await count(first)
    assert counted == [first["content"]]
    await count(first, second)
    assert counted == [first["content"], second["content"]]


async def test_json_and_a_text_of_the_same_bytes_have_each_their_count() -> None:
    # As JSON it has quotes and escapes, as a text what these stand for.
    string = json.dumps("\n\t" * LEAST_BYTES)
    as_text = await count({"role": "user", "content": json.loads(string)})
    known_counts.cache_clear()
    as_json = await count(values=(string.encode(),))
    assert as_json > as_text
    assert await count({"role": "user", "content": json.loads(string)}) == as_text
    assert await count(values=(string.encode(),)) == as_json


def test_what_was_not_asked_for_the_longest_time_is_forgotten() -> None:
    known = KnownCounts(most=2)
    first, second, third = (digest_of(known, text) for text in (b"first", b"second", b"third"))
    known.remember(first, 1)
    known.remember(second, 2)
    assert known.find(first) == 1
    known.remember(third, 3)
    assert (known.find(first), known.find(second), known.find(third)) == (1, None, 3)
    assert len(known) == 2


def test_each_process_has_digests_of_its_own() -> None:
    assert digest_of(KnownCounts(), b"the same") != digest_of(KnownCounts(), b"the same")


async def test_nothing_of_a_text_stays() -> None:
    await count(long_message(CANARY), values=(json.dumps([CANARY * 100]).encode(),))
    kept = list(known_counts()._by_digest.items())
    assert len(kept) == 2
    for digest, found_tokens in kept:
        assert type(digest) is bytes
        assert len(digest) == 32
        assert type(found_tokens) is int
        assert CANARY.encode()[:8] not in digest
