"""The model classes that an account and its keys may use, and the form that chooses them."""

from collections.abc import Collection

from console.display.language import _
from console.display.words import listed
from console.web.forms import Rules
from legato_protos.auth.v1 import auth_pb2
from legato_protos.type.v1.class_allowance_pb2 import ClassAllowance
from services.rules.model_classes import AUTO, CLASSES


def classes_of_account(account: auth_pb2.Account) -> list[str]:
    return [class_id for class_id in CLASSES if may_use(account, class_id)]


def classes_of_key(key: auth_pb2.Key, account: auth_pb2.Account) -> list[str]:
    """Returns what the key may use: what both it and its account allow."""
    return [class_id for class_id in classes_of_account(account) if may_use(key, class_id)]


def may_use(owner: auth_pb2.Account | auth_pb2.Key, model_id: str) -> bool:
    """Returns whether an owner's own allowance has a class; `auto` is one of those that it has."""
    return model_id == AUTO or not owner.HasField("allowed_classes") or model_id in owner.allowed_classes.class_ids


def auto_class(account: auth_pb2.Account) -> str:
    """Returns what `auto` means, as auth tells; an earlier version of it does not."""
    return account.auto_class or account.preferred_class


def in_words(key: auth_pb2.Key, account: auth_pb2.Account) -> str:
    classes = classes_of_key(key, account)
    if not classes:
        return _("None: the account allows none of the key's classes")
    return listed(classes)


def classes_in(rules: Rules, offered: Collection[str]) -> ClassAllowance | None:
    """Reads the classes that a form allows; None for all that are offered."""
    chosen = set(rules.form.all("allowed"))
    rules.require(bool(chosen) and chosen <= set(offered), "allowed", _("Choose at least one class."))
    if chosen == set(offered):
        return None
    return ClassAllowance(class_ids=[class_id for class_id in offered if class_id in chosen])
