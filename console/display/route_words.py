"""Says in words what a changed routes file would change."""

from console.display.language import _
from legato_protos.router.v1 import route_files_pb2 as pb


def change_words(change: pb.RouteChange) -> str:
    """Returns a sentence about one change."""
    values = {
        "class_id": change.class_id,
        "model": change.model_name,
        "provider": change.provider,
        "field": change.field,
        "before": change.before,
        "after": change.after,
    }
    match change.kind:
        case pb.ROUTE_CHANGE_KIND_MODEL_ADDED:
            return _("%(class_id)s: %(model)s of %(provider)s is added, in tier %(after)s.", **values)
        case pb.ROUTE_CHANGE_KIND_MODEL_REMOVED:
            return _("%(class_id)s: %(model)s of %(provider)s is removed from tier %(before)s.", **values)
        case pb.ROUTE_CHANGE_KIND_TIER:
            return _("%(class_id)s: %(model)s moves from tier %(before)s to tier %(after)s.", **values)
        case pb.ROUTE_CHANGE_KIND_WEIGHT:
            return _("%(class_id)s: %(model)s has weight %(after)s instead of %(before)s.", **values)
        case pb.ROUTE_CHANGE_KIND_CANARY:
            return _canary(change, values)
        case pb.ROUTE_CHANGE_KIND_SHADOW:
            return _shadow(change, values)
        case pb.ROUTE_CHANGE_KIND_CLASS_SETTING:
            return _setting(values, change.class_id)
        case pb.ROUTE_CHANGE_KIND_MODEL_SETTING:
            return _setting(values, f"{change.provider}/{change.model_name}")
        case _:
            return _setting(values, change.provider)


def _canary(change: pb.RouteChange, values: dict[str, str]) -> str:
    if not change.after:
        return _("%(class_id)s: the canary %(model)s ends; it had %(before)s %% of the accounts.", **values)
    if not change.before:
        return _("%(class_id)s: the canary %(model)s begins with %(after)s %% of the accounts.", **values)
    return _("%(class_id)s: the canary %(model)s gets %(after)s %% of the accounts instead of %(before)s %%.", **values)


def _shadow(change: pb.RouteChange, values: dict[str, str]) -> str:
    if not change.after:
        return _("%(class_id)s: the shadow %(model)s ends; it got copies of %(before)s %% of the chats.", **values)
    if not change.before:
        return _("%(class_id)s: the shadow %(model)s begins with copies of %(after)s %% of the chats.", **values)
    return _(
        "%(class_id)s: the shadow %(model)s gets copies of %(after)s %% of the chats instead of %(before)s %%.",
        **values,
    )


def _setting(values: dict[str, str], name: str) -> str:
    if not values["before"] and not values["after"]:
        return _("%(name)s: %(field)s changes.", name=name, field=values["field"])
    shown = {"before": values["before"] or "–", "after": values["after"] or "–"}
    return _("%(name)s: %(field)s is %(after)s instead of %(before)s.", name=name, field=values["field"], **shown)
