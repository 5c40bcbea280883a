"""Finds what differs between two versions of routes, one change at a time, and without secrets."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from legato_protos.router.v1 import route_files_pb2 as pb
from services.chassis.money import format_usd
from services.router.providers.base import ProviderRoute
from services.router.routing.class_route import SETTINGS, CanaryRoute, ClassRoute, ShadowRoute
from services.router.routing.reload import masked
from services.router.routing.routes import Routes
from services.router.routing.target import ProviderCost, Target
from services.rules.model_classes import CLASSES

_ModelName = tuple[str, str]
# What is told to differ, but not how.
_HIDDEN: Final = {"api_key": "api_key", "extra_json": "body"}


def find_route_changes(current: Routes, wanted: Routes) -> list[pb.RouteChange]:
    return [
        *(change for class_id in CLASSES for change in _changes_of_class(class_id, current, wanted)),
        *_changes_of_models(current, wanted),
        *_changes_of_providers(current, wanted),
    ]


def _changes_of_class(class_id: str, current: Routes, wanted: Routes) -> Iterator[pb.RouteChange]:
    before, after = (routes.classes.get(class_id, ClassRoute()) for routes in (current, wanted))
    places = [_places_in(route) for route in (before, after)]
    for name in dict.fromkeys([*places[0], *places[1]]):
        was, will = (found.get(name) for found in places)
        for kind, old, new in _moves(was, will):
            yield _change(kind, old, new, class_id=class_id, name=name)
    for kind, old_model, new_model in (
        (pb.ROUTE_CHANGE_KIND_CANARY, before.canary, after.canary),
        (pb.ROUTE_CHANGE_KIND_SHADOW, before.shadow, after.shadow),
    ):
        yield from _changes_of_new_model(kind, class_id, old_model, new_model)
    characters = (routes.characters[class_id].version for routes in (current, wanted))
    settings = {"character": tuple(characters)} | {
        name: (getattr(before, name), getattr(after, name)) for name in SETTINGS
    }
    for field, (old, new) in settings.items():
        if old != new:
            yield _change(pb.ROUTE_CHANGE_KIND_CLASS_SETTING, old, new, class_id=class_id, field=field)


def _places_in(route: ClassRoute) -> dict[_ModelName, tuple[int, int, bool]]:
    """Returns the tier of each model, its weight, and whether it shares the tier with others."""
    return {
        _name_of(member.target): (number, member.weight, len(tier) > 1)
        for number, tier in enumerate(route.tiers, start=1)
        for member in tier
    }


def _moves(
    was: tuple[int, int, bool] | None, will: tuple[int, int, bool] | None
) -> Iterator[tuple["pb.RouteChangeKind.ValueType", int | None, int | None]]:
    if was is None:
        yield pb.ROUTE_CHANGE_KIND_MODEL_ADDED, None, will[0] if will else None
    elif will is None:
        yield pb.ROUTE_CHANGE_KIND_MODEL_REMOVED, was[0], None
    else:
        if was[0] != will[0]:
            yield pb.ROUTE_CHANGE_KIND_TIER, was[0], will[0]
        # A model that is alone in its tier gets all chats, whatever its weight.
        if was[1] != will[1] and (was[2] or will[2]):
            yield pb.ROUTE_CHANGE_KIND_WEIGHT, was[1], will[1]


def _changes_of_new_model(
    kind: "pb.RouteChangeKind.ValueType",
    class_id: str,
    before: CanaryRoute | ShadowRoute | None,
    after: CanaryRoute | ShadowRoute | None,
) -> Iterator[pb.RouteChange]:
    """Yields how the canary or the shadow of a class changes; another model is another canary."""
    names = [None if route is None else _name_of(route.target) for route in (before, after)]
    percents = [None if route is None else f"{route.percent:g}" for route in (before, after)]
    if names[0] is not None and names[0] != names[1]:
        yield _change(kind, percents[0], None, class_id=class_id, name=names[0])
    if names[1] is not None and (names[0] != names[1] or percents[0] != percents[1]):
        old = percents[0] if names[0] == names[1] else None
        yield _change(kind, old, percents[1], class_id=class_id, name=names[1])
    setting = pb.ROUTE_CHANGE_KIND_CLASS_SETTING
    accounts = [sorted(getattr(route, "accounts", ())) for route in (before, after)]
    if accounts[0] != accounts[1]:
        old_accounts, new_accounts = (", ".join(each) for each in accounts)
        yield _change(setting, old_accounts, new_accounts, class_id=class_id, field="canary.accounts")
    calls = [getattr(route, "calls_per_minute", None) for route in (before, after)]
    if None not in calls and calls[0] != calls[1]:
        yield _change(setting, *calls, class_id=class_id, field="shadow.calls_per_minute")


def _changes_of_models(current: Routes, wanted: Routes) -> Iterator[pb.RouteChange]:
    described = [{_name_of(target): _settings_of(target) for target in _called(routes)} for routes in (current, wanted)]
    for name in sorted(described[0].keys() & described[1].keys()):
        yield from _differing(pb.ROUTE_CHANGE_KIND_MODEL_SETTING, described[0][name], described[1][name], name)


def _changes_of_providers(current: Routes, wanted: Routes) -> Iterator[pb.RouteChange]:
    for name in sorted(current.providers.keys() & wanted.providers.keys()):
        before, after = current.providers[name], wanted.providers[name]
        kind = pb.ROUTE_CHANGE_KIND_PROVIDER_SETTING
        yield from _differing(kind, _settings_of(before), _settings_of(after), (name, ""))
        for hidden, field in _HIDDEN.items():
            if getattr(before, hidden) != getattr(after, hidden):
                yield _change(kind, None, None, name=(name, ""), field=field)


def _called(routes: Routes) -> Iterator[Target]:
    for route in routes.classes.values():
        yield from route.called


def _settings_of(described: Target | ProviderRoute) -> dict[str, Any]:
    """Returns the settings of a model or provider, but for its names, those of inner tables behind a dot."""
    settings: dict[str, Any] = {}
    for each in fields(described):
        value = getattr(described, each.name)
        if isinstance(value, ProviderCost):
            prices = {inner.name.removesuffix("_nanos"): getattr(value, inner.name) for inner in fields(value)}
            settings |= {f"cost.{name}": format_usd(nanos) for name, nanos in prices.items()}
        elif is_dataclass(value):
            settings |= {inner.name: getattr(value, inner.name) for inner in fields(value)}
        elif each.name not in ("name", "provider", "model_name", *_HIDDEN):
            settings[each.name] = value
    return settings


def _differing(
    kind: "pb.RouteChangeKind.ValueType", before: Mapping[str, Any], after: Mapping[str, Any], name: _ModelName
) -> Iterator[pb.RouteChange]:
    for field in dict.fromkeys([*before, *after]):
        if before.get(field) != after.get(field):
            yield _change(kind, before.get(field), after.get(field), name=name, field=field)


def _name_of(target: Target) -> _ModelName:
    return target.provider, target.model_name


def _change(
    kind: "pb.RouteChangeKind.ValueType",
    before: object,
    after: object,
    *,
    class_id: str = "",
    name: _ModelName = ("", ""),
    field: str = "",
) -> pb.RouteChange:
    return pb.RouteChange(
        kind=kind,
        class_id=class_id,
        provider=name[0],
        model_name=name[1],
        field=field,
        before="" if before is None else str(masked(before)),
        after="" if after is None else str(masked(after)),
    )
