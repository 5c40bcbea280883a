"""Events of the audit log, in words."""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import services.auth
import services.metering
from console.display.event_words import ACTIONS, KINDS, OF_ACCOUNTS, event_words
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.audit.servicer import _ACTION_NAMES
from services.auth.core.records.users import SignInMethod
from services.auth.notices.records import KINDS as NOTICE_KINDS
from services.chassis.access_tokens import AccountRole
from services.chassis.changes import Change, from_changes

# Of notices, processes' logs and columns.
OTHERS = {
    *NOTICE_KINDS, "account.locked", "account.unlocked", "key.pepper_missing", "notices.failed", "notices.notice_id",
    "notices.waiting", "sessions.session_id",
}  # fmt: skip


def actions_in_code() -> set[str]:
    """Finds what auth and metering write to the audit log, by the texts in their code."""
    pattern = re.compile(rf"(?:{'|'.join(KINDS)})\.[a-z_]+(?:\.[a-z_]+)?")
    folders = [Path(package.__path__[0]) for package in (services.auth, services.metering)]
    nodes = [
        node for folder in folders for path in folder.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))
    ]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = {text for text in texts if pattern.fullmatch(text)} - OTHERS
    # Also of a kind that is not known here.
    calls = [node for node in nodes if isinstance(node, ast.Call) and len(node.args) > 1]
    appended = [call.args[1] for call in calls if getattr(call.func, "attr", "").endswith("append")]
    found |= {str(each.value) for each in appended if isinstance(each, ast.Constant)} | set(_ACTION_NAMES.values())
    found |= {f"member.role_changed.{role.name.lower()}" for role in AccountRole if role}
    found |= {f"{action}.{way.value}" for action in ("user.signed_in", "session.stepped_up") for way in SignInMethod}
    return found


def event(action: str, *changes: Change, **given: Any) -> pb.AuditEvent:
    fields = {"user_id": "user_1", "user_name": "Ada", "account_id": "acct_1", **given}
    return pb.AuditEvent(action=action, changes=from_changes(changes), **fields)


def test_every_action_has_words_in_every_language(in_french: Callable[[], None]) -> None:
    actions = actions_in_code()
    assert {"key.rotated", "low_balance.changed", "totp.set", "routes.reload_requested"} <= actions
    assert sorted(action for action in actions if action not in ACTIONS) == []
    assert {action.partition(".")[0] for action in actions} <= set(KINDS)
    assert set(OF_ACCOUNTS) <= set(KINDS)
    english = {action: event_words(event(action)).sentence for action in actions}
    assert len(set(english.values())) == len(actions)
    in_french()
    same = [action for action in actions if event_words(event(action)).sentence == english[action]]
    assert same == []


def test_a_sentence_says_who_changed_what_from_what_to_what() -> None:
    limit = Change("spend_day_nanos", 5 * 10**9, 10 * 10**9)
    of_key: Any = {"object_id": "key_1", "object_name": "service"}
    assert event_words(event("spend_limits.changed", limit, **of_key)) == (
        "Ada changed the spend limit of the key “service” from $5.00 a day to $10.00 a day",
        (),
    )
    of_account = event_words(event("spend_limits.changed", limit, object_id="acct_1"))
    assert of_account.sentence == "Ada changed the spend limit of the account from $5.00 a day to $10.00 a day"
    both = event_words(event("spend_limits.changed", limit, Change("spend_total_nanos", None, 10**9), **of_key))
    assert both == (
        "Ada changed the spend limits of the key “service”",
        ("Spend limit by day: from $5.00 a day to $10.00 a day", "Spend limit in all: from no limit to $1.00 in all"),
    )


def test_names_are_ids_and_people_former_ones_where_there_are_none() -> None:
    def said(action: str, **given: Any) -> str:
        return event_words(event(action, **given)).sentence

    assert said("key.revoked", object_id="key_1") == "Ada revoked the key “key_1”"
    assert said("account.suspended", user_id="", user_name="") == "The command line suspended the account"
    assert said("account.suspended", user_name="") == "A former user suspended the account"
    assert said("member.removed", object_id="user_1", object_name="Ada") == "Ada left the account"
    assert said("member.removed", object_id="user_2", object_name="Bo") == "Ada removed Bo from the account"


def test_events_of_other_releases_are_told_as_they_are_called() -> None:
    assert event_words(event("session.started")) == ("Ada: Session started", ())
    assert event_words(event("key.updated", object_name="service")).changes == ()
