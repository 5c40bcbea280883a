"""The models of a class as the routes file lists them: in tiers, each with weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from services.router.routes import file as kinds
from services.router.routes.file import Table
from services.router.routes.target import Target
from services.rules.model_classes import CLASSES

# Keys of earlier releases, with what they were for.
_REMOVED: Final = {
    "shadow": "copies of chats are no longer sent (a canary tries a new model)",
    "hedge": "no second model is asked at the same time (see first_token_s)",
}


@dataclass(frozen=True, slots=True)
class TierMember:
    """A model of a tier; chats are shared among the members of a tier by weight."""

    target: Target
    weight: int = 1


@dataclass(frozen=True, slots=True)
class CanaryRoute:
    """A new model, which is tried first for some accounts."""

    target: Target
    percent: float
    # Those for which it is in any case.
    accounts: frozenset[str] = frozenset()

    @property
    def share(self) -> str:
        """Describes for whom it is tried."""
        return ", ".join((f"{self.percent:g} %", *sorted(self.accounts)))


@dataclass(frozen=True, slots=True)
class ClassRoute:
    # In order of preference: a later tier is asked if no model of an earlier one answers.
    tiers: tuple[tuple[TierMember, ...], ...] = ()
    canary: CanaryRoute | None = None
    # Models whose servers cut prompts in silence get none of the size that they cut.
    refuse_cut_prompts: bool = False
    # How long the first token is waited for while another model may be asked; None: by what is usual for the model.
    first_token_s: float | None = None
    # Whether chats are sent what their models think, unless they set it themselves.
    show_reasoning: bool = False
    # Whether streams are padded, unless the chat sets it itself.
    pad_streams: bool = False

    @property
    def targets(self) -> tuple[Target, ...]:
        """All models: the tiers in order of preference, then a canary that is in none."""
        found = dict.fromkeys(member.target for tier in self.tiers for member in tier)
        if self.canary is not None:
            found.setdefault(self.canary.target)
        return tuple(found)

    @property
    def trials(self) -> Iterator[tuple[str, Target, str]]:
        """Yields the models that are tried: how, which, and for whom."""
        if self.canary is not None:
            yield "canary", self.canary.target, self.canary.share


# What the file sets of a class beside its models.
SETTINGS: Final = tuple(each.name for each in fields(ClassRoute) if each.name not in ("tiers", "canary"))


def in_order(*targets: Target) -> ClassRoute:
    """Returns a class whose models are tried one after another."""
    return ClassRoute(tuple((TierMember(target),) for target in targets))


def read_class_route(name: str, table: Table, models: Mapping[str, Target]) -> ClassRoute:
    if name not in CLASSES:
        table.mistake("", f"is not a class; the classes are {', '.join(CLASSES)}")
        return ClassRoute()
    tiers = _read_tiers(table, models)
    canary = _read_canary(table.inner("canary"), tiers, models) if table.has("canary") else None
    refuse_cut_prompts = table.read("refuse_cut_prompts", kinds.FLAG, False)
    first_token_s = table.read("first_token_s", kinds.SECONDS, None)
    show_reasoning = table.read("show_reasoning", kinds.FLAG, False)
    pad_streams = table.read("pad_streams", kinds.FLAG, False)
    table.finish(_REMOVED)
    return ClassRoute(tiers, canary, refuse_cut_prompts, first_token_s, show_reasoning, pad_streams)


def _read_tiers(table: Table, models: Mapping[str, Target]) -> tuple[tuple[TierMember, ...], ...]:
    """Reads `tiers`, or `models`, each of which is a tier of its own."""
    if not table.has("tiers"):
        if not table.has("models"):
            table.mistake("models", "is missing; a class has models or tiers")
        names = table.read("models", kinds.NAMES, [])
        _check_names(table, "models", names, models)
        return in_order(*(models[name] for name in names if name in models)).tiers
    if table.has("models"):
        table.mistake("tiers", "cannot stand beside models")
        table.read("models", kinds.NAMES, [])
    weights = [{name: tier.read(name, kinds.POSITIVE) for name in tier.keys} for tier in table.listed("tiers")]
    if not all(weights):
        table.mistake("tiers", "has a tier without a model")
    _check_names(table, "tiers", [name for tier in weights for name in tier], models)
    return tuple(
        tuple(TierMember(models[name], weight) for name, weight in tier.items() if name in models) for tier in weights
    )


def _read_canary(
    table: Table, tiers: tuple[tuple[TierMember, ...], ...], models: Mapping[str, Target]
) -> CanaryRoute | None:
    model = table.read("model", kinds.TEXT)
    percent = table.read("percent", kinds.PERCENT)
    accounts = frozenset(table.read("accounts", kinds.NAMES, []))
    table.finish()
    target = models.get(model)
    if model and target is None:
        table.mistake("model", f'no model named "{model}"')
    elif tiers and [member.target for member in tiers[0]] == [target]:
        table.mistake("model", "is the first model of the class already")
    return None if target is None else CanaryRoute(target, percent, accounts)


def _check_names(table: Table, key: str, names: Sequence[str], models: Mapping[str, Target]) -> None:
    for name in names:
        if name not in models:
            table.mistake(key, f'no model named "{name}"')
    if len(set(names)) < len(names):
        table.mistake(key, "names a model twice")
