"""Records in the audit log which settings of keys and grants changed."""

from dataclasses import asdict

from services.auth.keys.records import NO_SPEND_LIMITS, CallerGrant, Key, KeySpendLimits
from services.chassis.changes import Change, Settings, changes_between


def key_changes(before: Key | None, after: Key, spend_limits: KeySpendLimits = NO_SPEND_LIMITS) -> list[Change]:
    """Returns which settings of a key differ; None: it is new, and has these spend limits."""
    spending = {f"spend_{name}": nanos for name, nanos in asdict(spend_limits).items()}
    return changes_between(_settings_of_key(before) if before else {}, {**_settings_of_key(after), **spending})


def grant_changes(before: CallerGrant | None, after: CallerGrant) -> list[Change]:
    return changes_between(asdict(before.limits) if before else {}, asdict(after.limits))


def _settings_of_key(key: Key) -> Settings:
    return {
        "scopes": tuple(scope.value for scope in key.scopes) or None,
        "expires_at_us": key.expires_at_us,
        **asdict(key.limits),
        "allowed_classes": key.allowed_classes.class_ids,
        "replaces_key_id": key.replaces_key_id,
    }
