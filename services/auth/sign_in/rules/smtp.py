"""Sends messages to the mail server of LEGATO_SMTP_URL, one at a time in a thread of its own.

smtplib is used rather than a client on the event loop: a few messages an hour need no concurrency, and it is in the
standard library.
"""

import asyncio
import smtplib
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Final
from urllib.parse import unquote, urlsplit

from services.chassis.settings import SettingsError

TIMEOUT_S: Final = 20.0
_PORTS: Final = {"smtp": 587, "smtps": 465}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class MailServer:
    host: str
    port: int
    # TLS from the first byte, rather than by STARTTLS.
    is_tls_at_once: bool
    # From whom messages are.
    sender: str
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def is_this_machine(self) -> bool:
        return self.host in _LOOPBACK


def parse_mail_server(url: str, sender: str) -> MailServer | None:
    """Parses LEGATO_SMTP_URL and LEGATO_MAIL_FROM; None: not set. Errors quote nothing: the address has a password."""
    if not url:
        return None
    mistake = SettingsError(
        "LEGATO_SMTP_URL: must be smtp://USER:PASSWORD@HOST:PORT or smtps://USER:PASSWORD@HOST:PORT"
    )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise mistake from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or parts.query:
        raise mistake
    if "@" not in sender or not sender.isprintable() or not sender.isascii():
        raise SettingsError("LEGATO_MAIL_FROM: must be the address that mail comes from, as LEGATO_SMTP_URL is set")
    return MailServer(
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        is_tls_at_once=parts.scheme == "smtps",
        sender=sender,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


class MailSender:
    def __init__(self, server: MailServer, tls: ssl.SSLContext | None = None) -> None:
        """Takes a context of TLS for tests; others trust what the machine trusts."""
        self._server = server
        self._tls = tls
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mail")

    async def send(self, to: str, subject: str, text: str, html: str) -> None:
        """Sends a message; raises OSError, of which smtplib's errors are subclasses."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self._server.sender, to, subject
        message["Date"] = formatdate()
        message["Message-ID"] = make_msgid(domain=self._server.sender.rpartition("@")[2].strip("<> "))
        # Out-of-office programs do not answer such messages.
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text)
        message.add_alternative(html, subtype="html")
        await asyncio.get_running_loop().run_in_executor(self._thread, self._send, message)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _send(self, message: EmailMessage) -> None:
        server = self._server
        with self._connect() as smtp:
            if not server.is_tls_at_once and (smtp.has_extn("starttls") or not server.is_this_machine):
                # Raises where the server does not offer it: nothing is sent in the clear.
                smtp.starttls(context=self._context())
                smtp.ehlo()
            if server.user:
                smtp.login(server.user, server.password)
            smtp.send_message(message)

    def _connect(self) -> smtplib.SMTP:
        server = self._server
        if server.is_tls_at_once:
            return smtplib.SMTP_SSL(server.host, server.port, "legato", timeout=TIMEOUT_S, context=self._context())
        smtp = smtplib.SMTP(server.host, server.port, "legato", timeout=TIMEOUT_S)
        smtp.ehlo()
        return smtp

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls
