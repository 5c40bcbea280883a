"""Big prompts that begin alike prefer the same router."""

import json

from edge.chat.router_affinity import BEGINNING_BYTES, affinity_of

FIRST = {"role": "user", "content": "x" * BEGINNING_BYTES}


def affinity(*messages: object, account_id: str = "acct_1") -> str:
    return affinity_of(account_id, json.dumps(messages).encode())


def test_turns_of_a_conversation_have_the_same() -> None:
    first = affinity(FIRST)
    assert first
    assert affinity(FIRST, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Go on"}) == first


def test_other_beginnings_and_other_accounts_have_others() -> None:
    other = {"role": "user", "content": "y" * BEGINNING_BYTES}
    assert len({affinity(FIRST), affinity(other), affinity(FIRST, account_id="acct_2")}) == 3


def test_short_prompts_have_none() -> None:
    assert affinity({"role": "user", "content": "Hello"}) == ""
