"""Operations on few requests and little credit, so that they meet. Each example makes their ids its own.

Requests are named by how many came after them: 0 is the newest one, and -1 one that is not known yet.
"""

from typing import Any

from hypothesis import strategies as st

from services.metering.credit.ledger.spend import InheritSpendLimits, SetSpendLimits, SpendLimits
from services.metering.credit.records import (
    Adjust,
    Basis,
    Checkpoint,
    End,
    Extend,
    Grant,
    IdempotencyClaim,
    Operation,
    Reserve,
    RestorePayment,
    ReturnPayment,
    Settle,
    Sweep,
    Void,
)
from services.metering.settings import MeteringSettings
from services.rules.usage import COLUMNS, Usage, with_bounded_parts
from tests.services.metering.samples import KEY

# Replaces others.
NEW_KEY = "key_new"

# A request, and whether it is said to be its own account's or the other's.
Named = tuple[str, str]

_accounts = st.sampled_from(["a1", "a1", "a2"])
_owners = st.sampled_from(["own"] * 15 + ["other"])
_known = st.tuples(st.sampled_from(["0"] * 5 + ["1"] * 3 + ["2"] * 2 + ["-1"]), _owners)
_new_or_known = st.tuples(st.sampled_from(["-1"] * 4 + ["0"] * 3 + ["1", "2"]), _owners)
_classes = st.sampled_from(["forte", "forte", "mezzo"])
_tokens = st.integers(0, 20)
_bases: st.SearchStrategy[Basis] = st.sampled_from(["provider", "counted", "journal"])
_ends: st.SearchStrategy[End] = st.sampled_from(["complete", "client_gone", "crashed"])


def _to_usage(*counts: int) -> Usage:
    return Usage(*with_bounded_parts(counts))


def _to_reserve(
    request: Named,
    key_id: str,
    class_id: str,
    prompt_tokens: int,
    output_tokens: int,
    claim: IdempotencyClaim | None,
    concurrent_requests: int | None,
    whole_output_tokens: int,
) -> Reserve:
    tokens = prompt_tokens, output_tokens
    return Reserve(*request, key_id, class_id, *tokens, claim, concurrent_requests, whole_output_tokens)


def _to_extend(request: Named, total_nanos: int, delivered: Usage) -> Extend:
    return Extend(*request, total_nanos, delivered)


def _to_checkpoint(request: Named, delivered: Usage) -> Checkpoint:
    return Checkpoint(*request, delivered)


def _to_settle(request: Named, usage: Usage, basis: Basis, end: End) -> Settle:
    return Settle(*request, usage, basis, end)


def _to_void(request: Named, end: End, class_id: str, lost: Usage, due_tokens: int) -> Void:
    return Void(*request, end, KEY, class_id, lost, Usage(prompt_tokens=due_tokens))


def _to_sweep(request: Named) -> Sweep:
    return Sweep(*request)


usages = st.builds(_to_usage, *[_tokens] * len(COLUMNS))
replicas = st.sampled_from([1, 0])
# From noon of the last day but one of a month.
days = st.sampled_from([1, 1, 2, 31])
grants = st.builds(Grant, st.sampled_from([f"g{n}" for n in range(1, 9)]), _accounts, st.integers(1, 300))
adjusts = st.builds(
    Adjust, st.sampled_from([f"d{n}" for n in range(1, 9)]), _accounts, st.integers(-200, 100), st.just("a test")
)
_returned = st.sampled_from([f"p{n}" for n in range(1, 4)])
returns = st.builds(ReturnPayment, _returned, _accounts, st.sampled_from([100, 100, 300]), st.just("a refund"))


def _to_restore(returned: ReturnPayment) -> RestorePayment:
    return_id, account_id, amount_nanos = returned.operation_id, returned.account_id, returned.amount_nanos
    return RestorePayment(f"{return_id}-restored", account_id, amount_nanos, return_id, "it failed")


restores = st.builds(_to_restore, returns)
_claims = st.builds(IdempotencyClaim, st.sampled_from([b"k1", b"k2"]), st.sampled_from([b"b1", b"b1", b"b2"]))
_keys = st.sampled_from([KEY, KEY, KEY, "key_b", NEW_KEY])
_concurrencies = st.sampled_from([None, None, None, 1, 2, 3])
_wholes = st.sampled_from([0, 0, 0, 5, 25])
_reserved = (_keys, _classes, _tokens, _tokens, st.one_of(st.none(), _claims), _concurrencies, _wholes)
reserves = st.builds(_to_reserve, _new_or_known, *_reserved)
new_reserves = st.builds(_to_reserve, st.just(("-1", "own")), *_reserved)
extends = st.builds(_to_extend, _known, st.integers(0, 500), usages)
checkpoints = st.builds(_to_checkpoint, _known, usages)
settles = st.builds(_to_settle, _known, usages, _bases, _ends)
voids = st.builds(
    _to_void, _known, _ends, _classes, st.one_of(st.just(Usage()), usages), st.sampled_from([0, 0, 0, 1, 7, 300])
)
sweeps = st.builds(_to_sweep, _known)
of_requests: st.SearchStrategy[Operation[Any]] = st.one_of(settles, reserves, voids, extends, checkpoints, sweeps)
_limited_keys = st.sampled_from(["", "", KEY, KEY, KEY, "key_b", NEW_KEY])
_limit = st.one_of(st.none(), st.integers(0, 400))
limits = st.builds(SpendLimits, _limit, _limit, _limit)
spend_limits = st.builds(SetSpendLimits, _accounts, _limited_keys, limits)
inherits = st.builds(
    InheritSpendLimits,
    _accounts,
    st.sampled_from([NEW_KEY, NEW_KEY, "key_b"]),
    st.just(SpendLimits()),
    replaced_key_id=st.sampled_from([KEY, KEY, "key_b", NEW_KEY]),
)
operations: st.SearchStrategy[Operation[Any]] = st.one_of(
    of_requests, reserves, settles, grants, adjusts, spend_limits, inherits, returns, restores
)
policies = st.sampled_from(
    [
        MeteringSettings(retention_holds_days=0),
        MeteringSettings(retention_holds_days=1, retention_ledger_months=1, retention_usage_months=1),
    ]
)
_places = ("closing.begun", "closing.drafted", "closing.closed", "pruning.marked", "pruning.deleted", "pruning.summed")
failpoints_of_retention = st.sampled_from(["", *(f"metering.{place}" for place in _places), "metering.pruning.holds"])
batches = st.lists(operations, min_size=1, max_size=3)
