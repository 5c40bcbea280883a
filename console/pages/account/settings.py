"""The settings of an account: its name, what `auto` means, grounding, and its audit log."""

import asyncio

from starlette.responses import Response

from console.account.allowed_classes import classes_in, classes_of_account, may_use
from console.web.forms import Refusal, Rules
from console.web.refusals import shows_again
from console.web.visit import Visit
from protos.auth.v1 import auth_pb2
from protos.auth.v1 import users_pb2 as pb
from protos.router.v1.router_pb2 import ListModelsRequest
from services.chassis.errors import Reason
from services.rules.model_classes import AUTO, CLASSES


async def show(visit: Visit, refusal: Refusal | None = None) -> Response:
    account, members, models = await asyncio.gather(
        visit.read_account(),
        visit.auth.accounts.ListMembers(pb.ListMembersRequest(account_id=visit.account_id)),
        visit.optional(visit.router.router.ListModels(ListModelsRequest()), "classes"),
    )
    classes = None if models is None else [each.model_id for each in models.models if each.model_id != AUTO]
    return visit.render(
        "settings.html",
        refusal=refusal,
        account=account,
        members=members.members,
        invitations=members.invitations,
        classes=None if classes is None else [name for name in classes if may_use(account, name)],
        all_classes=list(CLASSES),
        allowed=classes_of_account(account),
    )


shows_refusals = shows_again(show, reasons=(Reason.REQUEST_INVALID, Reason.NOT_FOUND, Reason.MODEL_UNKNOWN))


@shows_refusals
async def set_class(visit: Visit) -> Response:
    return await _update(visit, auth_pb2.UpdateAccountRequest(preferred_class=visit.form.get("class")))


@shows_refusals
async def set_allowed_classes(visit: Visit) -> Response:
    with Rules(visit.form) as rules:
        allowed = classes_in(rules, CLASSES)
    request = auth_pb2.UpdateAccountRequest(allowed_classes=allowed, allow_all_classes=allowed is None)
    return await _update(visit, request)


@shows_refusals
async def set_grounding(visit: Visit) -> Response:
    chosen = visit.form.all("grounding")
    request = auth_pb2.UpdateAccountRequest(
        search="search" in chosen, memory="memory" in chosen, attachments="attachments" in chosen
    )
    return await _update(visit, request)


@shows_refusals
async def rename(visit: Visit) -> Response:
    return await _update(visit, auth_pb2.UpdateAccountRequest(name=visit.form.get("name")))


async def _update(visit: Visit, request: auth_pb2.UpdateAccountRequest) -> Response:
    request.account_id = visit.account_id
    await visit.auth.account_admin.UpdateAccount(request)
    return visit.redirect("/settings", "account-changed")
