"""Writes the mail that users get: sign-in links, invitations, and notices of changes to how they sign in.

Callers never wait for the mail server, so that the time does not tell whether an address is known. No address is
logged.
"""

import asyncio
import html
from collections.abc import Coroutine
from typing import Final

from services.auth.core import codes
from services.auth.core.parts import Domain, Parts, Sleep
from services.auth.core.records.users import User
from services.auth.core.store import Connection
from services.auth.core.store import users as stored_users
from services.auth.sign_in.records import Challenge, ChallengeKind
from services.auth.sign_in.rules.smtp import MailSender
from services.auth.sign_in.store import codes as stored_codes

MAILED_LINK_VALID_US: Final = 900_000_000
# Users that have one address, which is not verified.
SAME_EMAIL_MOST: Final = 3
# Beside the one that is sent. More are dropped: the mail server is away.
WAITING_MOST: Final = 1_000
RETRY_DELAYS_S: Final = (2.0, 15.0, 60.0)
CLOSE_TIMEOUT_S: Final = 3.0


class Mail(Domain):
    def __init__(self, parts: Parts, sender: MailSender | None, origin: str, sleep: Sleep = asyncio.sleep) -> None:
        """Takes the console's `origin`, for links. Without a sender, nothing is sent."""
        super().__init__(parts)
        self._sender = sender if origin else None
        self._origin = origin
        self._sleep = sleep
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def is_offered(self) -> bool:
        return self._sender is not None

    def send_link(self, email: str) -> None:
        """Sends a sign-in link to each user with this address."""
        self._begin(self._send_links(email))

    def send_code(self, user: User) -> None:
        """Sends a code to a user who is signed in and is asked who they are."""
        self._begin(self._send_code(user))

    def invite(self, email: str, code: str, account: str, inviter: str) -> None:
        who = inviter or "An operator"
        self._begin(
            self._deliver(
                email,
                f"{who} invites you to {account} on Legato",
                [f"{who} invites you to join {account} on Legato. The link works once, within a week."],
                f"{self._origin}/invitation#{code}",
                "See the invitation",
            )
        )

    def notify(self, user: User, what: str) -> None:
        """Tells a user what was changed, if they have an address."""
        if user.email:
            advice = "If this was not you, sign in, end all other sessions on the security page, and tell an operator."
            subject = "A change to how you sign in to Legato"
            self._begin(
                self._deliver(user.email, subject, [what, advice], f"{self._origin}/security", "Open the security page")
            )

    async def send_notice(self, email: str, subject: str, lines: list[str]) -> None:
        """Sends a notice to an owner, once; raises if the server does not take it. Callers try again."""
        if self._sender is None:
            raise OSError("no mail server is set")
        link = f"{self._origin}/settings/notices"
        text = "\n\n".join([*lines, link]) + "\n"
        await self._sender.send(email, subject, text, _page(subject, lines, link, "Open the page of notices"))

    async def close(self) -> None:
        """Gives messages on their way a moment."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=CLOSE_TIMEOUT_S)
        for task in self._sending:
            task.cancel()
        if self._sender is not None:
            self._sender.close()

    async def written(self) -> None:
        """Waits for all messages, for tests."""
        while self._sending:
            await asyncio.wait(self._sending)

    def _begin(self, sending: Coroutine[object, None, None]) -> None:
        if self._sender is None or len(self._sending) > WAITING_MOST:
            sending.close()
            if self._sender is not None:
                self._log.warning("mail.dropped")
            return
        task = asyncio.create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_links(self, email: str) -> None:
        try:
            links = await self._database.write(self._make_links, email)
        except Exception as error:
            self._log.failure("mail.failed", error)
            return
        for user, code in links:
            await self._deliver(
                email,
                "Your link to sign in to Legato",
                [
                    f"This link signs you in as {user.name}. It works once, within 15 minutes.",
                    "If you did not ask for it, ignore it: without the link, no one gets in.",
                ],
                f"{self._origin}/sign-in#{code}",
                "Sign in",
            )

    def _make_links(self, connection: Connection, email: str) -> list[tuple[User, str]]:
        found = stored_users.find_by_email(connection, email, SAME_EMAIL_MOST)
        return [(user, self._make_code(connection, user)) for user in found if user.disabled_at_us is None]

    def _make_code(self, connection: Connection, user: User) -> str:
        now_us, code = self.now_us(), codes.mint_code()
        digest = self._peppers.digest_code(codes.LINK, codes.plain(code))
        expires_at_us = now_us + MAILED_LINK_VALID_US
        challenge = Challenge(digest.hex(), user.user_id, b"", "", expires_at_us, ChallengeKind.MAILED_LINK)
        stored_codes.add_challenge(connection, challenge, now_us)
        self._audit.append(connection, "sign_in_link.mailed", user_id=user.user_id, object_id=user.user_id)
        return code

    async def _send_code(self, user: User) -> None:
        try:
            code = await self._database.write(self._make_code, user)
        except Exception as error:
            self._log.failure("mail.failed", error)
            return
        lines = [
            f"The console asks whether it is you, {user.name}. Type this code there: {code}",
            "It works once, within 15 minutes. If you did not ask for it, end all other sessions on the security page.",
        ]
        link = f"{self._origin}/security"
        await self._deliver(user.email, "Your code to confirm that it is you", lines, link, "Open the security page")

    async def _deliver(self, to: str, subject: str, lines: list[str], link: str, label: str) -> None:
        if self._sender is None:
            return
        text = "\n\n".join([*lines, link]) + "\n"
        for delay_s in (*RETRY_DELAYS_S, None):
            try:
                await self._sender.send(to, subject, text, _page(subject, lines, link, label))
            except Exception as error:
                # The type alone: its text may have the address.
                self._log.warning("mail.failed", error=type(error).__name__)
                if delay_s is None or not isinstance(error, OSError):
                    return
                await self._sleep(delay_s)
            else:
                self._log.info("mail.sent")
                return


def _page(title: str, lines: list[str], link: str, label: str) -> str:
    """Writes the message for readers of HTML: no image, no script, nothing that tells that it was opened."""
    paragraphs = "".join(f'<p style="margin:0 0 16px">{html.escape(line)}</p>' for line in lines)
    address = html.escape(link)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title></head>'
        '<body style="margin:0;padding:24px;font:16px/1.5 system-ui,sans-serif;color:#1c1b22;background:#fff">'
        f'<div style="max-width:520px;margin:0 auto">{paragraphs}'
        f'<p style="margin:0 0 16px"><a href="{address}" style="display:inline-block;padding:12px 20px;'
        f'border-radius:8px;background:#4b3fb5;color:#fff;text-decoration:none">{html.escape(label)}</a></p>'
        f'<p style="margin:0;font-size:14px;color:#5d5a6b">{address}</p></div></body></html>'
    )
