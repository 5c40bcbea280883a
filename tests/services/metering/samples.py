"""Operations with everything filled in that a test does not care about."""

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from services.metering.credit.batch import Writer
from services.metering.credit.model_calls import ModelCall, encode_calls
from services.metering.credit.prices import Price
from services.metering.credit.records import (
    Adjust,
    AnswerT,
    Basis,
    Checkpoint,
    End,
    Extend,
    Grant,
    IdempotencyClaim,
    Operation,
    Reserve,
    Settle,
    Sweep,
    Void,
)
from services.rules.usage import Usage

ACCOUNT = "acct_aaaaaaaaaaaaaaaa"
KEY = "key_aaaaaaaaaaaa"

# A token of prompt costs 2 nanos, a cached one 1, a token of output 10.
PRICES = {"forte": Price(2_000_000, 1_000_000, 10_000_000), "mezzo": Price(100_000, 20_000, 210_000)}

LIFE_S = 3660.0

NOTHING = Usage()


def request_id(number: int) -> str:
    return f"{number:032x}"


def reserve(
    number: int,
    *,
    prompt: int = 0,
    output: int = 10,
    account: str = ACCOUNT,
    claim: IdempotencyClaim | None = None,
    at_once: int | None = None,
    key: str = KEY,
    whole: int = 0,
) -> Reserve:
    """Wants 2 nanos for each token of the prompt and 10 for each of output."""
    return Reserve(request_id(number), account, key, "forte", prompt, output, claim, at_once, whole)


def claimed(key: str = "a key", body: str = "a body") -> IdempotencyClaim:
    return IdempotencyClaim(sha256(key.encode()).digest(), sha256(body.encode()).digest())


def extend(number: int, total_nanos: int, *, delivered: Usage = NOTHING, account: str = ACCOUNT) -> Extend:
    return Extend(request_id(number), account, total_nanos, delivered)


def checkpoint(number: int, *, completion: int, prompt: int = 0, account: str = ACCOUNT) -> Checkpoint:
    return Checkpoint(request_id(number), account, Usage(prompt, 0, completion))


def settle(
    number: int,
    *,
    prompt: int = 0,
    cached: int = 0,
    completion: int = 0,
    account: str = ACCOUNT,
    basis: Basis = "provider",
    end: End = "complete",
    routes_version: str | None = None,
    calls: Sequence[ModelCall] = (),
) -> Settle:
    usage, model_calls = Usage(prompt, cached, completion), encode_calls(calls) if calls else None
    return Settle(request_id(number), account, usage, basis, end, routes_version, model_calls)


TOLD_USAGE = Usage(5, 2, 3, 1, 2)


def model_call(
    provider: str = "acme", model_name: str = "large", cost_nanos: int | None = 7, usage: Usage = TOLD_USAGE
) -> ModelCall:
    return ModelCall(provider, model_name, cost_nanos, usage)


def void(number: int, *, account: str = ACCOUNT, lost: Usage = NOTHING, due: Usage = NOTHING) -> Void:
    return Void(request_id(number), account, "refused", KEY, "forte", lost, due)


def sweep(number: int, *, account: str = ACCOUNT) -> Sweep:
    return Sweep(request_id(number), account)


def grant(amount_nanos: int, *, account: str = ACCOUNT, grant_id: str = "grant-1") -> Grant:
    return Grant(grant_id, account, amount_nanos)


def adjust(amount_nanos: int, *, account: str = ACCOUNT, adjustment_id: str = "adjustment-1") -> Adjust:
    return Adjust(adjustment_id, account, amount_nanos, "a test")


def ask(writer: Writer, operation: Operation[AnswerT]) -> "asyncio.Future[AnswerT]":
    return writer.submit(operation, lambda answer: answer)


async def ask_each(writer: Writer, *operations: Operation[Any]) -> None:
    """One after the other, each in a batch of its own."""
    for operation in operations:
        await ask(writer, operation)


async def ask_all(writer: Writer, *operations: Operation[Any]) -> list[Any]:
    """Asks at once; answers include refusals."""
    return await asyncio.gather(*(ask(writer, operation) for operation in operations), return_exceptions=True)
