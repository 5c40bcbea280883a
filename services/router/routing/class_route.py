"""The models of a class as the routes file lists them: in tiers, each with weights."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.router.routing import route_file as kinds
from services.router.routing.route_file import Table
from services.router.routing.target import Target
from services.rules.model_classes import CLASSES


@dataclass(frozen=True, slots=True)
class TierMember:
    """A model of a tier; chats are shared among the members of a tier by weight."""

    target: Target
    weight: int = 1


@dataclass(frozen=True, slots=True)
class ClassRoute:
    # In order of preference: a later tier is asked if no model of an earlier one answers.
    tiers: tuple[tuple[TierMember, ...], ...] = ()

    @property
    def targets(self) -> tuple[Target, ...]:
        """All models, in order of preference."""
        return tuple(member.target for tier in self.tiers for member in tier)


def in_order(*targets: Target) -> ClassRoute:
    """Returns a class whose models are tried one after another."""
    return ClassRoute(tuple((TierMember(target),) for target in targets))


def read_class_route(name: str, table: Table, models: Mapping[str, Target]) -> ClassRoute:
    if name not in CLASSES:
        table.mistake("", f"is not a class; the classes are {', '.join(CLASSES)}")
        return ClassRoute()
    named = table.read("models", kinds.NAMES)
    for model in named:
        if model not in models:
            table.mistake("models", f'no model named "{model}"')
    if len(set(named)) < len(named):
        table.mistake("models", "names a model twice")
    table.finish()
    return in_order(*(models[model] for model in named if model in models))
