"""Defines the rules that set the spend limits of accounts and keys, or let a key share those of another."""

from collections.abc import Iterable

from msgspec.structs import replace

from services.chassis.changes import changes_between, to_json
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.ledger.rule_context import Effect, RuleContext
from services.metering.credit.ledger.spend import (
    WHOLE_ACCOUNT,
    InheritSpendLimits,
    SetSpendLimits,
    Spend,
    SpendLimits,
    spend_id,
    subject_id_of,
    with_limits,
)
from services.metering.credit.records import AccountChange


def set_limits(operation: SetSpendLimits, context: RuleContext) -> Effect[Spend]:
    """Replaces the limits. Lower ones of an account lower those of its keys."""
    account_id, limits = operation.account_id, operation.limits
    known = _find(context, account_id, operation.key_id)
    spend = known or context.new_spends[spend_id(account_id, operation.key_id)]
    whole = context.spends.get(spend_id(account_id, WHOLE_ACCOUNT))
    spend = with_limits(spend, limits, SpendLimits() if whole is None else whole.limits)
    changed = [spend]
    if operation.key_id == WHOLE_ACCOUNT:
        of_keys = [each for each in context.spends.values() if each.account_id == account_id and each.key_id]
        changed += [with_limits(each, each.limits.within(limits), limits) for each in of_keys]
    return _effect(operation, context, spend, changed)


def inherit_limits(operation: InheritSpendLimits, context: RuleContext) -> Effect[Spend]:
    """Lets a key that was never used share what another has and counts. If that has nothing, or the key has, or had,
    limits itself, they are set like any first ones."""
    account_id, own_id = operation.account_id, spend_id(operation.account_id, operation.key_id)
    known = _find(context, account_id, operation.key_id)
    if known is not None:
        return _effect(operation, context, known)
    used = context.new_spends[own_id]
    if used.total_spent_nanos or used.held_nanos:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("key_used_before"), param="key_id")
    replaced = _find(context, account_id, operation.replaced_key_id)
    if replaced is None:
        return set_limits(operation, context)
    shared = Spend(own_id, account_id, operation.key_id, shared_spend_id=replaced.spend_id)
    return _effect(operation, context, replaced, [shared])


def _find(context: RuleContext, account_id: str, key_id: str) -> Spend | None:
    return context.spends.get(subject_id_of(context.spends, account_id, key_id))


def _effect(
    operation: SetSpendLimits, context: RuleContext, spend: Spend, changed: Iterable[Spend] = ()
) -> Effect[Spend]:
    """Answers the spend that now applies to the key; the audit log is told if its limits differ from those before."""
    account_id, key_id = operation.account_id, operation.key_id
    known = _find(context, account_id, key_id)
    limits = SpendLimits() if known is None else known.limits
    change = None
    if spend.limits != limits and operation.changed_by is not None:
        changes_json = to_json(changes_between(limits.settings, spend.limits.settings))
        change = AccountChange(
            "spend_limits.changed", account_id, key_id, *operation.changed_by, context.now_us, changes_json
        )
    return Effect(
        replace(spend, key_id=key_id),
        replace(context.account, has_spend_limits=True),
        spends=tuple(changed),
        change=change,
    )
