"""Chooses the class that serves a chat: the one that it names, or by its text for `auto`."""

from collections.abc import Collection

from legato_protos.router.v1.router_pb2 import ChatOpen
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.rules.model_classes import AUTO, CLASSES, DEFAULT_CLASS, auto_class


def class_of(chat: ChatOpen) -> str:
    """Returns the class for a chat; raises MODEL_UNKNOWN."""
    allowed = chat.allowed_classes.class_ids if chat.HasField("allowed_classes") else CLASSES
    return resolve_class(chat.model, chat.preferred_class, allowed)


def resolve_class(model: str, preferred_class: str, allowed: Collection[str] = CLASSES) -> str:
    """Returns the class that serves; one that is not allowed is refused like an unknown one."""
    class_id = model
    if model in ("", AUTO):
        class_id = auto_class(preferred_class or DEFAULT_CLASS, allowed)
    if class_id not in CLASSES or class_id not in allowed:
        usable = [each for each in CLASSES if each in allowed]
        hint = Sentence("model_unknown_use", models=", ".join((AUTO, *usable)))
        raise LegatoError(Reason.MODEL_UNKNOWN, hint if usable else Sentence("model_unknown"), param="model")
    return class_id
