"""Records in the audit log which settings of an account changed."""

from dataclasses import asdict

from services.auth.core.records.accounts import Account
from services.chassis.changes import Change, Settings, changes_between


def account_changes(before: Account, after: Account) -> list[Change]:
    return changes_between(_settings_of_account(before), _settings_of_account(after))


def _settings_of_account(account: Account) -> Settings:
    return {
        "preferred_class": account.preferred_class,
        "allowed_classes": account.allowed_classes.class_ids,
        **asdict(account.limits),
        **asdict(account.grounding),
    }
