"""Notices: what owners are told, where to, and what could not be delivered."""

import asyncio
from typing import Final

from starlette.responses import Response

from console.display.change_words import NOTICE_KINDS
from console.display.language import N_, _, in_figures
from console.display.sentences import in_words
from console.services import if_available
from console.web.forms import Refusal, Rules, parse_dollars
from console.web.refusals import shows_again
from console.web.shown_once import ShownOnce, secret_page
from console.web.visit import Visit
from legato_protos.auth.v1 import notices_pb2 as pb
from legato_protos.metering.v1 import notices_pb2 as metering_pb
from services.chassis.errors import Reason
from services.chassis.money import format_usd
from services.chassis.sentence_messages import from_sentence_message

PATH: Final = "/settings/notices"
LISTED: Final = 30
KINDS: Final = {**NOTICE_KINDS, "test": N_("Test")}
STATES: Final = {
    pb.DELIVERY_STATE_PENDING: ("", N_("Waiting")),
    pb.DELIVERY_STATE_DELIVERED: ("good", N_("Delivered")),
    pb.DELIVERY_STATE_FAILED: ("bad", N_("Not delivered")),
}
_SHOWN_REASONS: Final = (Reason.REQUEST_INVALID, Reason.NOT_FOUND, Reason.RATE_LIMITED)


async def show(visit: Visit, refusal: Refusal | None = None) -> Response:
    account_id = visit.account_id
    only_failed = visit.query.get("show") == "failed"
    settings, listed, thresholds = await asyncio.gather(
        visit.auth.notices.GetNoticeSettings(pb.GetNoticeSettingsRequest(account_id=account_id)),
        visit.auth.notices.ListNotices(
            pb.ListNoticesRequest(account_id=account_id, page_size=LISTED, only_failed=only_failed)
        ),
        if_available(
            visit.metering.notice_thresholds.GetLowBalance(metering_pb.GetLowBalanceRequest(account_id=account_id))
        ),
    )
    low_balance = None if thresholds is None else thresholds.low_balance
    own_threshold = (
        "" if low_balance is None or low_balance.is_default else in_figures(format_usd(low_balance.threshold_nanos))
    )
    return visit.render(
        "notices.html",
        refusal=refusal,
        settings=settings.settings,
        notices=listed.notices,
        low_balance=low_balance,
        only_failed=only_failed,
        kinds=KINDS,
        states=STATES,
        own_mail=pb.OwnMail,
        own_threshold=own_threshold,
        summary_of=_summary_of,
    )


def _summary_of(notice: pb.Notice) -> str:
    return in_words(from_sentence_message(notice.sentence, notice.summary))


@shows_again(show, "low_balance", reasons=_SHOWN_REASONS)
async def set_low_balance(visit: Visit) -> Response:
    with Rules(visit.form) as rules:
        problem = _("An amount in dollars, such as 5.00, or nothing for the default.")
        nanos = rules.parse(parse_dollars, "low_balance", problem)
    request = metering_pb.SetLowBalanceRequest(account_id=visit.account_id, threshold_nanos=nanos)
    await visit.metering.notice_thresholds.SetLowBalance(request)
    return visit.redirect(PATH, "notices-changed")


async def set_mail(visit: Visit) -> Response:
    chosen = visit.form.all("kind")
    muted = [kind for kind in NOTICE_KINDS if kind not in chosen]
    request = pb.SetMutedKindsRequest(account_id=visit.account_id, muted_kinds=muted)
    await visit.auth.notices.SetMutedKinds(request)
    return visit.redirect(PATH, "notices-changed")


@shows_again(show, "own_mail", reasons=_SHOWN_REASONS)
async def set_own_mail(visit: Visit) -> Response:
    request = pb.SetOwnMailRequest(account_id=visit.account_id, is_on=visit.form.get("own_mail") == "on")
    await visit.auth.notices.SetOwnMail(request)
    return visit.redirect(PATH, "notices-changed")


@shows_again(show, "url", reasons=_SHOWN_REASONS)
async def add_webhook(visit: Visit) -> Response:
    request = pb.AddWebhookRequest(account_id=visit.account_id, url=visit.form.get("url"))
    made = await visit.auth.notices.AddWebhook(request)
    return await WEBHOOK.lead_to(f"{PATH}/webhooks", visit, made)


WEBHOOK: Final = ShownOnce(pb.AddWebhookResponse, secret_page("webhook_made.html"))


@shows_again(show, "url", reasons=_SHOWN_REASONS)
async def remove_webhook(visit: Visit) -> Response:
    request = pb.RemoveWebhookRequest(account_id=visit.account_id, webhook_id=visit.form.get("webhook_id"))
    await visit.auth.notices.RemoveWebhook(request)
    return visit.redirect(PATH, "webhook-removed")


@shows_again(show, "test", reasons=_SHOWN_REASONS)
async def send_test(visit: Visit) -> Response:
    request = pb.SendTestNoticeRequest(account_id=visit.account_id)
    await visit.auth.notices.SendTestNotice(request)
    return visit.redirect(PATH, "notice-test-sent")


@shows_again(show, "resend", reasons=_SHOWN_REASONS)
async def resend(visit: Visit) -> Response:
    request = pb.ResendNoticeRequest(account_id=visit.account_id, delivery_id=visit.form.get("delivery_id"))
    await visit.auth.notices.ResendNotice(request)
    return visit.redirect(PATH, "notice-sent-again")
