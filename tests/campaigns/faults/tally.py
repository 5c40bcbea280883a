"""Counts what a campaign saw at each point, and tells it."""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.campaigns.faults.judge import Violation
from tests.campaigns.faults.round import Outcome

COLUMNS = ("point", "kills", "lost", "doubled", "stuck", "audit", "errors", "requests", "free", "missed")


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
    # Requests that nobody paid for, because the edge died after the first delivery and before the mark for it.
    free: int = 0
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
