"""`legato notices`."""

import click

from cli.command import HelpLine, Invocation, command_group
from cli.connection import call_service
from cli.descriptions import described, money
from cli.spend_limits import LIMIT
from cli.values import account_argument
from legato_protos.auth.v1 import notices_pb2 as pb
from legato_protos.metering.v1.notices_pb2 import GetLowBalanceRequest, LowBalance, SetLowBalanceRequest

COLUMNS = ["created_at", "kind", "summary", "channel", "recipient", "state", "attempts", "failure", "delivery_id"]
DELIVERY = ["delivery_id", "channel", "recipient", "state", "attempts", "failure", "next_attempt_at"]
WEBHOOK_COLUMNS = ["webhook_id", "url", "created_at"]

HELP = HelpLine(100, "Show and set what an account's owners are told, and how.")
notices = command_group("notices", HELP.text)


@notices.command("list")
@account_argument
@click.option("--failed", is_flag=True, help="Only those that could not be delivered.")
@click.option("--limit", type=click.IntRange(1, 100), default=50, show_default=True, help="The most notices to list.")
def list_(invocation: Invocation, account_id: str, failed: bool, limit: int) -> None:
    """List notices and their deliveries, the newest first."""
    request = pb.ListNoticesRequest(account_id=account_id, page_size=limit, only_failed=failed)
    found = call_service(invocation.services.notices.ListNotices, request).notices
    invocation.show_list([row for notice in found for row in describe(notice)], COLUMNS)


@notices.command()
@account_argument
@click.argument("delivery_id", metavar="DELIVERY")
def resend(invocation: Invocation, account_id: str, delivery_id: str) -> None:
    """Try a delivery again, also one that was given up."""
    request = pb.ResendNoticeRequest(account_id=account_id, delivery_id=delivery_id)
    call_service(invocation.services.notices.ResendNotice, request)
    invocation.show({"delivery_id": delivery_id, "state": "pending"})


@notices.command()
@account_argument
def test(invocation: Invocation, account_id: str) -> None:
    """Send a test notice to every webhook and owner."""
    request = pb.SendTestNoticeRequest(account_id=account_id)
    notice = call_service(invocation.services.notices.SendTestNotice, request, repeatable=False).notice
    invocation.show_list(describe(notice), COLUMNS)


@notices.command()
@account_argument
def show(invocation: Invocation, account_id: str) -> None:
    """Show the webhooks, the threshold of a low balance, and what is not mailed."""
    request = pb.GetNoticeSettingsRequest(account_id=account_id)
    settings = call_service(invocation.services.notices.GetNoticeSettings, request).settings
    threshold = GetLowBalanceRequest(account_id=account_id)
    low = call_service(invocation.services.notice_thresholds.GetLowBalance, threshold).low_balance
    invocation.show(
        {
            "account_id": account_id,
            **describe_threshold(low),
            "webhooks": [describe_webhook(webhook) for webhook in settings.webhooks],
            "not_mailed": list(settings.muted_kinds),
            "mails": settings.is_mail_offered,
            "mailed_owners": settings.mail_recipients,
        }
    )


@notices.command("set")
@account_argument
@click.option("--low-balance", type=LIMIT, help="Dollars; 0 for never, `none` for the service's default.")
@click.option("--mute", multiple=True, metavar="KIND", help="Do not mail this kind; repeat for several.")
@click.option("--unmute", multiple=True, metavar="KIND", help="Mail this kind again; repeat for several.")
def set_(
    invocation: Invocation, account_id: str, low_balance: int | None, mute: tuple[str, ...], unmute: tuple[str, ...]
) -> None:
    """Change the threshold of a low balance, and what is mailed to owners."""
    if low_balance is None and not mute and not unmute:
        raise click.UsageError("nothing to change: give --low-balance, --mute or --unmute.")
    stub = invocation.services.notices
    settings = call_service(stub.GetNoticeSettings, pb.GetNoticeSettingsRequest(account_id=account_id)).settings
    if mute or unmute:
        muted = {*settings.muted_kinds, *mute} - set(unmute)
        request = pb.SetMutedKindsRequest(account_id=account_id, muted_kinds=sorted(muted))
        settings = call_service(stub.SetMutedKinds, request).settings
    shown: dict[str, object] = {"account_id": account_id, "not_mailed": list(settings.muted_kinds)}
    if low_balance is not None:
        threshold = SetLowBalanceRequest(
            account_id=account_id, threshold_nanos=None if low_balance < 0 else low_balance
        )
        low = call_service(invocation.services.notice_thresholds.SetLowBalance, threshold).low_balance
        shown |= describe_threshold(low)
    invocation.show(shown)


webhooks = command_group("webhooks", "Add, list and remove an account's webhooks.")
notices.add_command(webhooks)


@webhooks.command("list")
@account_argument
def list_webhooks(invocation: Invocation, account_id: str) -> None:
    """List the webhooks; their secrets are not shown again."""
    request = pb.GetNoticeSettingsRequest(account_id=account_id)
    settings = call_service(invocation.services.notices.GetNoticeSettings, request).settings
    invocation.show_list([describe_webhook(webhook) for webhook in settings.webhooks], WEBHOOK_COLUMNS)


@webhooks.command()
@account_argument
@click.argument("url", metavar="URL")
def add(invocation: Invocation, account_id: str, url: str) -> None:
    """Add a webhook. Its secret is shown now and never again."""
    request = pb.AddWebhookRequest(account_id=account_id, url=url)
    made = call_service(invocation.services.notices.AddWebhook, request, repeatable=False)
    invocation.show({**describe_webhook(made.webhook), "secret": made.secret})


@webhooks.command()
@account_argument
@click.argument("webhook_id", metavar="WEBHOOK")
def remove(invocation: Invocation, account_id: str, webhook_id: str) -> None:
    """Remove a webhook, with what was not delivered to it."""
    request = pb.RemoveWebhookRequest(account_id=account_id, webhook_id=webhook_id)
    call_service(invocation.services.notices.RemoveWebhook, request, repeatable=False)
    invocation.show({"webhook_id": webhook_id, "state": "removed"})


def describe(notice: pb.Notice) -> list[dict[str, object]]:
    """Returns a row for each delivery, and one for a notice without any."""
    own = described(notice, "notice_id", "created_at", "kind", "key_id", "summary")
    deliveries = [describe_delivery(delivery) for delivery in notice.deliveries]
    return [{**own, **delivery} for delivery in deliveries or [dict.fromkeys(DELIVERY)]]


def describe_delivery(delivery: pb.NoticeDelivery) -> dict[str, object]:
    shown = described(delivery, *DELIVERY)
    return {**shown, "state": shown["state"] or "unknown"}


def describe_webhook(webhook: pb.Webhook) -> dict[str, object]:
    return described(webhook, *WEBHOOK_COLUMNS)


def describe_threshold(low: LowBalance) -> dict[str, object]:
    return {**money(low_balance=low.threshold_nanos), "low_balance_is_default": low.is_default}
