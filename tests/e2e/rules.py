"""The written rules of billing, as docs/billing.md has them: what is tested is what is written."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from services.router.prompts.tokens import count
from tests.support.service import Service
from tests.support.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "billing.md"
# In a cell of its own: there is none.
NONE = "–"  # noqa: RUF001

# Of class mezzo, in nano-dollars a token.
INPUT_NANOS, OUTPUT_NANOS = 100, 210


class Charged(NamedTuple):
    prompt_tokens: int
    completion_tokens: int


class Rule(NamedTuple):
    """A rule for how such an end is told to the client, and booked."""

    seen: str
    # None: nothing is written about the request at all.
    end: str | None
    charged: str
    basis: str | None


def read_rules(first_column: str) -> dict[str, Rule]:
    """Reads the table with this first heading, by what happened."""
    lines = PAGE.read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(f"| {first_column} |"))
    rules = {}
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        what, seen, end, charged, basis = (cell.strip() for cell in line.strip("|").split("|"))
        rules[what] = Rule(seen, _code(end), charged, _code(basis))
    return rules


def _code(cell: str) -> str | None:
    return cell.strip("`") if cell.startswith("`") else None


def usage_to_charge(
    rule: Rule, told: Mapping[str, int], prompt_tokens: int, delivered: str, max_tokens: int = 0
) -> Charged | None:
    """Applies the rule to the provider's count, to our count of the prompt, to the text delivered and to its limit."""
    match rule.charged:
        case "nothing" | "nothing, and the piece is our loss":
            return None
        case "the provider's count" | "all the credit there is":
            return Charged(told["prompt_tokens"], told["completion_tokens"])
        case "the prompt":
            return Charged(prompt_tokens, 0)
        case "our count of what is missing":
            return Charged(told["prompt_tokens"], count(delivered))
        case "our count" | "what was delivered" | "what was delivered at the last checkpoint":
            return Charged(prompt_tokens, count(delivered))
        case "`max_tokens`":
            assert count(delivered) > max_tokens
            return Charged(prompt_tokens, max_tokens)
    raise AssertionError(f"There is no such rule: {rule.charged}")


def check_books(service: Service, account: str, credit_nanos: int, rule: Rule, usage: Charged | None) -> None:
    """The account has had one request, and all that is written about it is what the rule says."""
    if rule.end is not None:
        wait_until(lambda: [hold for hold in service.holds(account) if hold.state != "held"])
    charged_nanos = credit_nanos - service.settled_balance_nanos(account)
    holds, entries = service.holds(account), service.entries(account)
    if rule.end is None:
        assert (holds, entries) == ([], [])
        return
    [hold] = holds
    assert (hold.end, hold.basis) == (rule.end, rule.basis)
    if usage is None:
        assert (hold.charged_nanos, charged_nanos) == (0, 0)
        losses = [("loss", "not_confirmed")] if "our loss" in rule.charged else []
        assert [(entry.kind, entry.reason) for entry in entries] == losses
        return
    [entry] = entries
    cost_nanos = usage.prompt_tokens * INPUT_NANOS + usage.completion_tokens * OUTPUT_NANOS
    assert (entry.kind, entry.end, entry.basis) == ("charge", rule.end, rule.basis)
    assert (entry.prompt_tokens, entry.completion_tokens) == usage
    assert (entry.customer_nanos, entry.loss_nanos) == (-charged_nanos, charged_nanos - cost_nanos)
    assert (charged_nanos < cost_nanos) == (rule.charged == "all the credit there is")
    assert entry.reason == ("beyond_credit" if charged_nanos < cost_nanos else None)
