"""A mail server that keeps what it gets, over a socket."""

import asyncio
import socket
import ssl
import threading
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, Final

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

USER: Final = "legato"
PASSWORD: Final = "a password: with @ and %"


class MailBox:
    """The server. It may fail for a while."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """Insists on TLS and a password if it has `tls`."""
        self.messages: list[EmailMessage] = []
        self.refusals = 0
        self._tls = tls
        is_secure = tls is not None

        def factory() -> SMTP:
            return SMTP(
                self,
                hostname="mail.test",
                tls_context=tls,
                require_starttls=is_secure,
                authenticator=self._check,
                auth_required=is_secure,
                loop=self._loop,
            )

        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        serving = self._loop.create_server(factory, sock=self._listener)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(60)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _end(self) -> None:
        """Closes the server and the connections that clients have just left, since nobody else would."""
        self._server.close()
        for _ in range(2):
            conversations = asyncio.all_tasks() - {asyncio.current_task()}
            for conversation in conversations:
                conversation.cancel()
            await asyncio.gather(*conversations, return_exceptions=True)
            # A transport that closes is closed in the next round of the loop.
            await asyncio.sleep(0)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        assert self._tls is None or session.ssl is not None
        if self.refusals:
            self.refusals -= 1
            return "451 Try again later"
        self.messages.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"

    def _check(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        is_right = isinstance(data, LoginPassword) and (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=is_right)


def text_of(message: EmailMessage, kind: str = "plain") -> str:
    body = message.get_body((kind,))
    assert body is not None
    return str(body.get_content())
