import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.auth.core.peppers import Peppers
from services.auth.notices.rules.webhook_client import WebhookClient
from services.auth.service import AuthService, ConsoleOptions
from services.auth.sign_in.rules.smtp import MailSender
from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import OPTIONS, ORIGIN, console, console_role  # noqa: F401
from tests.services.auth.notices.receiver import Receiver
from tests.services.auth.sign_in.rules.test_mail import box, certificate, made_box, sender  # noqa: F401
from tests.support.fakes import FakeClock


@pytest.fixture
def receiver(certificate: tuple[Path, Path]) -> Iterator[Receiver]:  # noqa: F811
    made = Receiver(*certificate)
    yield made
    made.close()


@pytest.fixture
def tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:  # noqa: F811
    return ssl.create_default_context(cafile=str(certificate[0]))


@pytest.fixture
def webhook_client(tls: ssl.SSLContext) -> Iterator[WebhookClient]:
    client = WebhookClient(allows_private=True, tls=tls)
    yield client
    client.close()


@pytest.fixture
def auth(
    database: Database,
    peppers: Peppers,
    clock: FakeClock,
    log: Log,
    sleep: FakeSleep,
    sender: MailSender,  # noqa: F811
    webhook_client: WebhookClient,
) -> AuthService:
    options = ConsoleOptions(
        signing_key=OPTIONS.signing_key, origins=ORIGIN, mail_sender=sender, webhook_client=webhook_client
    )
    return AuthService(database, peppers, clock, log, sleep, options)
