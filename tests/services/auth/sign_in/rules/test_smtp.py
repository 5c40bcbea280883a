# ruff: noqa: F811
import ssl

import pytest

from services.auth.sign_in.rules.smtp import MailSender, MailServer, parse_mail_server
from services.chassis.settings import SettingsError
from tests.services.auth.console import EMAIL
from tests.services.auth.sign_in.rules.test_mail import SENDER, box, certificate, made_box  # noqa: F401
from tests.support.outside.mail_box import PASSWORD, USER, MailBox


async def test_nothing_is_sent_to_a_server_without_a_trusted_certificate(box: MailBox) -> None:
    sender = MailSender(MailServer("127.0.0.1", box.port, False, SENDER, USER, PASSWORD))
    with pytest.raises(ssl.SSLCertVerificationError):
        await sender.send(EMAIL, "Hello", "Hello", "<p>Hello</p>")
    assert box.messages == []
    sender.close()


def test_the_address_of_a_mail_server_is_read_and_not_quoted() -> None:
    assert parse_mail_server("", "") is None
    server = parse_mail_server("smtps://legato:a%40b@mail.example.ca", SENDER)
    assert server is not None
    assert (server.host, server.port, server.is_tls_at_once, server.password) == ("mail.example.ca", 465, True, "a@b")
    assert "a@b" not in repr(server)
    for url, sender in (
        ("http://mail.example.ca", SENDER),
        ("smtp://", SENDER),
        ("smtp://user:secret@host:port", SENDER),
        ("smtp://mail.example.ca", ""),
    ):
        with pytest.raises(SettingsError) as error:
            parse_mail_server(url, sender)
        assert "secret" not in str(error.value)
