"""Webhooks of some accounts that take notices and never answer, while those of others get theirs. Its short form is
tests/services/auth/notices/rules/test_silent_receivers.py."""

import time
from dataclasses import dataclass, field
from typing import Final

from cli.connection import call_service
from legato_protos.auth.v1 import notices_pb2 as pb
from services.auth.notices.rules.webhook_client import TIMEOUT_S
from services.auth.notices.servicer import WEBHOOKS_MOST
from tests.services.auth.notices.receiver import Receiver
from tests.support.service import Service
from tests.support.waiting import wait_until

SILENT_ACCOUNTS: Final = 2
NOTICES: Final = 8
SETTINGS: Final = {"LEGATO_WEBHOOK_PRIVATE_NETWORKS": "true"}


@dataclass
class _Nowhere:
    # No chat is asked for.
    base_url: str = "http://127.0.0.1:9/v1"


@dataclass
class Waits:
    """How long each notice of others took to arrive, and how many attempts."""

    waits_s: list[float] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        found = []
        if max(self.attempts) > 1:
            found.append(f"a notice of others took {max(self.attempts)} attempts")
        if max(self.waits_s) > TIMEOUT_S:
            found.append(f"a notice of others waited for {max(self.waits_s):.1f} s")
        return found

    def __str__(self) -> str:
        longest_s, most = max(self.waits_s), max(self.attempts)
        return f"others' notices {len(self.waits_s)}  the slowest {longest_s:.2f} s  attempts {most} at most"


def run_silent_webhooks(others: int) -> Waits:
    receiver, found = Receiver(), Waits()
    try:
        with Service(_Nowhere(), SETTINGS) as service:
            for number in range(SILENT_ACCOUNTS):
                account_id = service.new_account()
                for webhook in range(WEBHOOKS_MOST):
                    path = f"/silent/{number}/{webhook}"
                    receiver.silent_paths.add(path)
                    _add_webhook(service, account_id, receiver, path)
                for _ in range(NOTICES):
                    call_service(
                        service.services.notices.SendTestNotice, pb.SendTestNoticeRequest(account_id=account_id)
                    )
            wait_until(lambda: len(receiver.waiting_paths) >= SILENT_ACCOUNTS)
            for number in range(others):
                account_id = service.new_account()
                _add_webhook(service, account_id, receiver, f"/other/{number}")
                began_s, before = time.monotonic(), len(receiver.bodies)
                call_service(service.services.notices.SendTestNotice, pb.SendTestNoticeRequest(account_id=account_id))
                wait_until(lambda before=before: len(receiver.bodies) > before)  # type: ignore[misc]
                found.waits_s.append(time.monotonic() - began_s)
                listed = call_service(
                    service.services.notices.ListNotices, pb.ListNoticesRequest(account_id=account_id)
                )
                found.attempts += [each.attempts for notice in listed.notices for each in notice.deliveries]
    finally:
        receiver.close()
    return found


def _add_webhook(service: Service, account_id: str, receiver: Receiver, path: str) -> None:
    request = pb.AddWebhookRequest(account_id=account_id, url=receiver.url + path)
    receiver.secrets[path] = call_service(service.services.notices.AddWebhook, request).secret
