import json

from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.auth.v1 import notices_pb2 as pb
from legato_protos.metering.v1 import notices_pb2 as metering_pb
from tests.cli.played import play

TIME = Timestamp(seconds=1_794_787_200)
WEBHOOK = pb.Webhook(webhook_id="whk_1", url="https://example.ca/hook", create_time=TIME)
SETTINGS = pb.NoticeSettings(webhooks=[WEBHOOK], muted_kinds=["balance.low"], is_mail_offered=True, mail_recipients=2)
GOT = ("auth", "NoticeService.GetNoticeSettings", pb.GetNoticeSettingsResponse(settings=SETTINGS))
DELIVERY = pb.NoticeDelivery(
    delivery_id="dlv_1",
    channel="webhook",
    recipient=WEBHOOK.url,
    state=pb.DELIVERY_STATE_FAILED,
    attempts=9,
    failure="HTTP 500",
)
NOTICE = pb.Notice(notice_id="ntc_1", kind="test", summary="A test.", create_time=TIME, deliveries=[DELIVERY])
QUIET = pb.Notice(notice_id="ntc_2", kind="balance.low", summary="Low.", create_time=TIME)


def test_notices_are_listed_with_what_could_not_be_delivered() -> None:
    listed = ("auth", "NoticeService.ListNotices", pb.ListNoticesResponse(notices=[NOTICE, QUIET]))
    far_end = play(listed)
    shown = json.loads(far_end.run("notices", "list", "acct_1", "--failed", "--json").stdout)
    assert [(row["notice_id"], row["state"], row["failure"]) for row in shown] == [
        ("ntc_1", "failed", "HTTP 500"),
        ("ntc_2", None, None),
    ]
    assert far_end.requests[-1] == pb.ListNoticesRequest(account_id="acct_1", page_size=50, only_failed=True)


def test_a_dead_letter_is_sent_again_and_a_test_is_sent() -> None:
    far_end = play(("auth", "NoticeService.ResendNotice", pb.ResendNoticeResponse()))
    assert far_end.run("notices", "resend", "acct_1", "dlv_1").exit_code == 0
    assert far_end.requests[-1] == pb.ResendNoticeRequest(account_id="acct_1", delivery_id="dlv_1")
    sent = ("auth", "NoticeService.SendTestNotice", pb.SendTestNoticeResponse(notice=NOTICE))
    assert "dlv_1" in play(sent).run("notices", "test", "acct_1").stdout


def test_a_webhook_is_added_with_its_secret_listed_without_and_removed() -> None:
    added = ("auth", "NoticeService.AddWebhook", pb.AddWebhookResponse(webhook=WEBHOOK, secret="whsec_1"))
    shown = play(added).run("notices", "webhooks", "add", "acct_1", WEBHOOK.url, "--json").stdout
    assert json.loads(shown)["secret"] == "whsec_1"
    assert "whk_1" in play(GOT).run("notices", "webhooks", "list", "acct_1").stdout
    removed = ("auth", "NoticeService.RemoveWebhook", pb.RemoveWebhookResponse())
    assert play(removed).run("notices", "webhooks", "remove", "acct_1", "whk_1").exit_code == 0


def test_settings_are_shown_and_changed() -> None:
    low = metering_pb.LowBalance(threshold_nanos=1_000_000_000, is_default=True)
    got = ("metering", "NoticeThresholdService.GetLowBalance", metering_pb.GetLowBalanceResponse(low_balance=low))
    shown = json.loads(play(GOT, got).run("notices", "show", "acct_1", "--json").stdout)
    assert (shown["low_balance_usd"], shown["not_mailed"], shown["mailed_owners"]) == ("1.00", ["balance.low"], 2)
    muted = ("auth", "NoticeService.SetMutedKinds", pb.SetMutedKindsResponse(settings=SETTINGS))
    own = ("metering", "NoticeThresholdService.SetLowBalance", metering_pb.SetLowBalanceResponse(low_balance=low))
    far_end = play(GOT, muted, own)
    options = ["--mute", "key.expires_soon", "--unmute", "balance.low", "--low-balance", "5"]
    assert far_end.run("notices", "set", "acct_1", *options).exit_code == 0
    assert list(far_end.requests[-2].muted_kinds) == ["key.expires_soon"]
    assert far_end.requests[-1].threshold_nanos == 5_000_000_000
    far_end = play(GOT, own)
    far_end.run("notices", "set", "acct_1", "--low-balance", "none")
    assert not far_end.requests[-1].HasField("threshold_nanos")
    assert "nothing to change" in play().run("notices", "set", "acct_1").stderr
