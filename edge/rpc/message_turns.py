"""Turns at receiving messages.

gRPC tells nothing of a message before all of it has arrived, and takes whatever is sent once it is asked to read. So a
message is asked for only in a turn, of which a process has few: together they bound the memory of what is arriving. Of
what is sent before its turn, gRPC keeps at most `UNREAD_BYTES`. An ordinary message has arrived by then, so its turn
takes no time.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from services.chassis.errors import LegatoError, Reason
from services.chassis.http.body_progress import PROGRESS_WITHIN_S
from services.chassis.load.fair_budget import RETRY_AFTER_S, SHARE_OF_FREE
from services.chassis.rpc.callers import Context
from services.chassis.sentence import Sentence
from services.chassis.timing.deadlines import TimeLimit

# One account may have five of them.
MOST_TURNS: Final = 8
UNREAD_BYTES: Final = 16 * 1024
# How long a message may take to arrive in its turn: nothing can be seen of its progress.
MESSAGE_TIMEOUT_S: Final = PROGRESS_WITHIN_S
WAIT_TIMEOUT_S: Final = 10.0
# For each account.
MOST_WAITING: Final = 1000

_Turn = asyncio.Future[None]
MessageT = TypeVar("MessageT", bound=Message)


class MessageTurns:
    def __init__(
        self,
        most: int = MOST_TURNS,
        *,
        message_timeout_s: float = MESSAGE_TIMEOUT_S,
        wait_timeout_s: float = WAIT_TIMEOUT_S,
    ) -> None:
        self._most = most
        self._message_timeout_s = message_timeout_s
        self._wait_timeout_s = wait_timeout_s
        self._taken = 0
        # Only accounts that have turns.
        self._taken_by_account: dict[str, int] = {}
        # Only accounts that wait, the one that has waited longest for its next turn first.
        self._waiting: dict[str, deque[_Turn]] = {}

    @contextlib.asynccontextmanager
    async def message(self, context: Context, account_id: str) -> AsyncIterator[bytes | None]:
        """Reads the next message of a call; None: the caller sends no other, or is gone. The turn lasts as long as the
        context. Raises SATURATED if no turn comes, and BODY_TIMEOUT if the message does not."""
        await self._take(account_id)
        try:
            yield await self._read(context)
        finally:
            self._leave(account_id)

    async def parsed(self, context: Context, account_id: str, kind: type[MessageT]) -> MessageT:
        """Reads the only message of a call."""
        async with self.message(context, account_id) as message:
            return parse(message or b"", kind)

    async def _read(self, context: Context) -> bytes | None:
        try:
            with TimeLimit(self._message_timeout_s, TimeoutError()):
                message: Any = await context.read()
        except TimeoutError:
            sentence = Sentence("message_late", within_s=f"{self._message_timeout_s:.0f}")
            raise LegatoError(Reason.BODY_TIMEOUT, sentence) from None
        return message if isinstance(message, bytes) else None

    async def _take(self, account_id: str) -> None:
        if self._may_take(account_id) and account_id not in self._waiting:
            self._count(account_id)
            return
        waiting = self._waiting.setdefault(account_id, deque())
        if len(waiting) >= MOST_WAITING:
            raise _no_turn()
        turn: _Turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            async with asyncio.timeout(self._wait_timeout_s):
                await turn
        except BaseException as error:
            self._withdraw(account_id, turn)
            if isinstance(error, TimeoutError):
                raise _no_turn() from None
            raise

    def _withdraw(self, account_id: str, turn: _Turn) -> None:
        if turn.done() and not turn.cancelled():
            # It came at the same moment.
            self._leave(account_id)
            return
        waiting = self._waiting.get(account_id, deque())
        with contextlib.suppress(ValueError):
            waiting.remove(turn)
            if not waiting:
                del self._waiting[account_id]

    def _leave(self, account_id: str) -> None:
        self._taken -= 1
        own = self._taken_by_account[account_id] - 1
        if own:
            self._taken_by_account[account_id] = own
        else:
            del self._taken_by_account[account_id]
        self._pass_on()

    def _may_take(self, account_id: str) -> bool:
        """Returns whether the account may have another turn: its first, or as of other budgets twice what it leaves."""
        left, own = self._most - self._taken - 1, self._taken_by_account.get(account_id, 0)
        return left >= 0 and (not own or own + 1 <= SHARE_OF_FREE * left)

    def _count(self, account_id: str) -> None:
        self._taken += 1
        self._taken_by_account[account_id] = self._taken_by_account.get(account_id, 0) + 1

    def _pass_on(self) -> None:
        """Gives free turns to who waits, to one account after the other."""
        while (account_id := next(filter(self._may_take, self._waiting), None)) is not None:
            waiting = self._waiting.pop(account_id)
            turn = waiting.popleft()
            if waiting:
                self._waiting[account_id] = waiting
            if not turn.cancelled():
                self._count(account_id)
                turn.set_result(None)


def parse(message: bytes, kind: type[MessageT]) -> MessageT:
    try:
        return kind.FromString(message)
    except DecodeError:
        raise LegatoError(
            Reason.REQUEST_INVALID, Sentence("message_of_another_type", type=kind.DESCRIPTOR.name)
        ) from None


def _no_turn() -> LegatoError:
    sentence = Sentence("share_used_up", what="Capacity to receive another message")
    return LegatoError(Reason.SATURATED, sentence, retry_after_s=RETRY_AFTER_S)
