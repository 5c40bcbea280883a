"""Notices: what owners are told, where to, and what could not be delivered."""

import asyncio
from typing import Any, Final

from starlette.responses import Response

from console.web import shown_once
from console.web.visit import Visit
from protos.auth.v1 import notices_pb2 as pb
from protos.metering.v1 import notices_pb2 as metering_pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import format_usd, parse_usd

PATH: Final = "/settings/notices"
LISTED: Final = 30
KINDS: Final = {
    "balance.low": "Low balance",
    "spend_limit.near": "Spend limit near",
    "spend_limit.reached": "Spend limit reached",
    "key.expires_soon": "Key expires soon",
    "key.new_network": "Key used from a new network",
    "test": "Test",
}
STATES: Final = {
    pb.DELIVERY_STATE_PENDING: ("", "Waiting"),
    pb.DELIVERY_STATE_DELIVERED: ("good", "Delivered"),
    pb.DELIVERY_STATE_FAILED: ("bad", "Not delivered"),
}
_TOLD: Final = (Reason.REQUEST_INVALID, Reason.NOT_FOUND, Reason.RATE_LIMITED)


async def show(visit: Visit) -> Response:
    if not visit.who.account_id:
        return visit.render("no_account.html")
    return await _page(visit)


async def set_low_balance(visit: Visit) -> Response:
    given = visit.form.get("low_balance").removeprefix("$")
    try:
        nanos = parse_usd(given) if given else None
    except ValueError:
        problem = "An amount in dollars, such as 5.00, or nothing for the default."
        return await _page(visit, {"low_balance": problem}, 400, low_balance=given)
    request = metering_pb.SetLowBalanceRequest(account_id=visit.who.account_id, threshold_nanos=nanos)
    try:
        await visit.metering.notice_thresholds.SetLowBalance(request)
    except LegatoError as error:
        return await _refused(visit, error, "low_balance", low_balance=given)
    return visit.redirect(PATH, "notices-changed")


async def set_mail(visit: Visit) -> Response:
    chosen = visit.form.all("kind")
    muted = [kind for kind in KINDS if kind != "test" and kind not in chosen]
    request = pb.SetMutedKindsRequest(account_id=visit.who.account_id, muted_kinds=muted)
    await visit.auth.notices.SetMutedKinds(request)
    return visit.redirect(PATH, "notices-changed")


async def set_own_mail(visit: Visit) -> Response:
    request = pb.SetOwnMailRequest(account_id=visit.who.account_id, is_on=visit.form.get("own_mail") == "on")
    try:
        await visit.auth.notices.SetOwnMail(request)
    except LegatoError as error:
        return await _refused(visit, error, "own_mail")
    return visit.redirect(PATH, "notices-changed")


async def add_webhook(visit: Visit) -> Response:
    url = visit.form.get("url")
    request = pb.AddWebhookRequest(account_id=visit.who.account_id, url=url)
    try:
        made = await visit.auth.notices.AddWebhook(request)
    except LegatoError as error:
        return await _refused(visit, error, "url", url=url)
    return await shown_once.show(visit, f"{PATH}/webhooks", made, _webhook_made)


async def show_webhook(visit: Visit) -> Response:
    made = await shown_once.take(visit, pb.AddWebhookResponse())
    return visit.redirect(PATH, "shown-before") if made is None else await _webhook_made(visit, made)


async def _webhook_made(visit: Visit, made: pb.AddWebhookResponse) -> Response:
    return visit.render("webhook_made.html", has_secret=True, made=made)


async def remove_webhook(visit: Visit) -> Response:
    request = pb.RemoveWebhookRequest(account_id=visit.who.account_id, webhook_id=visit.form.get("webhook_id"))
    try:
        await visit.auth.notices.RemoveWebhook(request)
    except LegatoError as error:
        return await _refused(visit, error, "url")
    return visit.redirect(PATH, "webhook-removed")


async def send_test(visit: Visit) -> Response:
    request = pb.SendTestNoticeRequest(account_id=visit.who.account_id)
    try:
        await visit.auth.notices.SendTestNotice(request)
    except LegatoError as error:
        return await _refused(visit, error, "test")
    return visit.redirect(PATH, "notice-test-sent")


async def resend(visit: Visit) -> Response:
    request = pb.ResendNoticeRequest(account_id=visit.who.account_id, delivery_id=visit.form.get("delivery_id"))
    try:
        await visit.auth.notices.ResendNotice(request)
    except LegatoError as error:
        return await _refused(visit, error, "resend")
    return visit.redirect(PATH, "notice-sent-again")


async def _refused(visit: Visit, error: LegatoError, field: str, **given: str) -> Response:
    if error.reason not in _TOLD:
        raise error
    return await _page(visit, {field: error.message}, 400, **given)


async def _page(visit: Visit, problems: dict[str, str] | None = None, status: int = 200, **given: str) -> Response:
    account_id = visit.who.account_id
    only_failed = visit.request.query_params.get("show") == "failed"
    settings, listed, low_balance = await asyncio.gather(
        visit.auth.notices.GetNoticeSettings(pb.GetNoticeSettingsRequest(account_id=account_id)),
        visit.auth.notices.ListNotices(
            pb.ListNoticesRequest(account_id=account_id, page_size=LISTED, only_failed=only_failed)
        ),
        _low_balance(visit),
    )
    values: dict[str, Any] = {"url": "", "low_balance": _own_threshold(low_balance), **given}
    return visit.render(
        "notices.html",
        status,
        settings=settings.settings,
        notices=listed.notices,
        low_balance=low_balance,
        only_failed=only_failed,
        kinds=KINDS,
        states=STATES,
        own_mail=pb.OwnMail,
        problems=problems or {},
        given=values,
    )


async def _low_balance(visit: Visit) -> metering_pb.LowBalance | None:
    """Returns the threshold; None: metering does not answer."""
    request = metering_pb.GetLowBalanceRequest(account_id=visit.who.account_id)
    try:
        found = await visit.metering.notice_thresholds.GetLowBalance(request)
    except LegatoError as error:
        if error.reason is not Reason.UNAVAILABLE:
            raise
        return None
    return found.low_balance


def _own_threshold(low_balance: metering_pb.LowBalance | None) -> str:
    if low_balance is None or low_balance.is_default:
        return ""
    return format_usd(low_balance.threshold_nanos)
