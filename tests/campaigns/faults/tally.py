"""Counts what a campaign saw at each point, and tells it."""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from tests.campaigns.faults.books.judge import Violation
from tests.campaigns.faults.round import Outcome

COLUMNS = ("point", "kills", "lost", "doubled", "stuck", "audit", "errors", "requests", "free", "late", "missed")


@dataclass
class Tally:
    point: str
    wanted: int
    kills: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    # Lines that `legato audit` has to say about the books.
    audit: int = 0
    # Lines in the logs by which a process says that something in it broke.
    errors: int = 0
    requests: int = 0
    # Requests that were not paid for, because the edge died after the first delivery and before the mark for it.
    free: int = 0
    # Requests whose usage came too late from the provider, which is this process: the machine was that slow.
    late: int = 0
    # Rounds in which nothing came to the point.
    missed: int = 0

    @property
    def is_good(self) -> bool:
        return self.kills >= self.wanted and not (self.lost or self.doubled or self.stuck or self.audit or self.errors)

    def add(self, outcome: Outcome) -> None:
        self.kills += outcome.reached
        self.missed += not outcome.reached
        self.requests += len(outcome.chats)
        self.free += outcome.free
        self.late += outcome.late
        for violation in outcome.violations:
            setattr(self, violation.kind, getattr(self, violation.kind) + 1)


def table(title: str, tallies: Iterable[Tally]) -> str:
    rows = [[str(getattr(tally, column)) for column in COLUMNS] for tally in tallies]
    rows.append(["in all", *(str(sum(int(row[at]) for row in rows)) for at in range(1, len(COLUMNS)))])
    widths = [max(len(row[at]) for row in [list(COLUMNS), *rows]) for at in range(len(COLUMNS))]
    lines = [_line(row, widths) for row in [list(COLUMNS), ["-" * width for width in widths], *rows]]
    return "\n".join([title, "", *lines, ""])


def story(outcome: Outcome, violation: Violation, where: str) -> str:
    """Everything about one violation, and how to play its round again."""
    replay = f'make faults ARGS="--points {outcome.point.name!r} --replay {outcome.seed}"'
    lines = [f"{violation.kind.upper()} at {outcome.point.name} ({where}, pass {outcome.passes}): {violation.what}"]
    if violation.chat is not None:
        chat, received = violation.chat, violation.chat.received
        account = outcome.accounts.get(chat.customer.account_id)
        lines += [
            f"  request   {chat.part.name}, {chat.tag}, account {chat.customer.account_id}",
            f"  provider  asked {len(chat.asked)} times, sent {chat.sent_tokens} tokens, end sent: {chat.sent_end}",
            f"  client    {received.ending} {received.error}, status {received.status}, {received.tokens} tokens",
            f"            was told {received.usage}",
        ]
        for hold in account.holds if account else ():
            lines.append(
                f"  ledger    {hold.request_id} {hold.state}, {hold.prompt_tokens} + {hold.completion_tokens} tokens,"
                f" charged {hold.charged_nanos}, loss {hold.loss_nanos}, basis {hold.basis}, end {hold.end}"
            )
        for entry in account.entries if account else ():
            lines.append(
                f"  entry     {entry.kind} {entry.customer_nanos}, {entry.prompt_tokens} + {entry.completion_tokens}"
                f" tokens, loss {entry.loss_nanos}"
            )
    return "\n".join([*lines, f"  again     {replay}"])


def _line(cells: list[str], widths: list[int]) -> str:
    name, *counts = cells
    return "  ".join(["", name.ljust(widths[0]), *map(str.rjust, counts, widths[1:])])


BAR_WIDTH = 30
LINE_EVERY_S = 15.0


class Progress:
    def __init__(self, title: str, total: int, counted: str = "kills") -> None:
        self._title = title
        self._counted = counted
        self._total = total
        self._done = 0
        self._began_at_s = time.monotonic()
        self._told_at_s = 0.0
        self._is_terminal = sys.stdout.isatty()

    def advance(self, now_at: str = "", by: int = 1) -> None:
        self._done += by
        now_s = time.monotonic()
        every_s = 0.2 if self._is_terminal else LINE_EVERY_S
        if now_s - self._told_at_s < every_s and self._done < self._total:
            return
        self._told_at_s = now_s
        spent_s = now_s - self._began_at_s
        left_s = spent_s / self._done * (self._total - self._done)
        filled = BAR_WIDTH * self._done // max(1, self._total)
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        line = f"{self._title} [{bar}] {self._done}/{self._total} {self._counted}, {_minutes(left_s)} left"
        line += f", {now_at}" if now_at else ""
        self._write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")

    def say(self, text: str) -> None:
        self._write(f"\r\x1b[K{text}\n" if self._is_terminal else f"{text}\n")

    def end(self) -> None:
        if self._is_terminal:
            self._write("\r\x1b[K")

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
