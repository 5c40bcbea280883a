from services.auth.core.changes import FIELDS, LONGEST_TEXT, TEXTS_MOST, allowed_changes
from services.auth.core.records.accounts import Account, GroundingPolicy, KeyLimits
from services.auth.keys.records import Key
from services.chassis.changes import Change
from services.chassis.database.records import columns_of

# Ids, names, times and counts, which are not settings.
NOT_TOLD = {
    "account_id", "key_id", "name", "created_at_us", "revoked_at_us", "suspended_at_us", "closed_at_us",
    "pepper_version", "last_used_hour_us", "created_by", "playground_user_id", "caller_name",
}  # fmt: skip


def test_every_setting_of_keys_and_accounts_may_be_in_the_log() -> None:
    settings = {column.name for record in (KeyLimits, GroundingPolicy) for column in columns_of(record)}
    settings |= {name for record in (Key, Account) for name in record.__dataclass_fields__}
    assert settings - NOT_TOLD - {"limits", "grounding"} <= set(FIELDS)


def test_what_is_not_on_the_list_or_too_long_or_of_another_type_is_left_out() -> None:
    fits = Change("webhook_host", None, "h" * LONGEST_TEXT)
    others = [
        Change("name", "Ada", "Grace"),
        Change("email", None, "ada@example.ca"),
        Change("webhook_host", None, "h" * (LONGEST_TEXT + 1)),
        Change("scopes", None, ("usage",) * (TEXTS_MOST + 1)),
        Change("requests_per_minute", None, True),
        Change("requests_per_minute", "60", None),
    ]
    assert allowed_changes([*others[:2], fits]) == (fits,)
    assert allowed_changes(others) is None
