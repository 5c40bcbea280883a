"""The playground: a conversation that the browser has with the API itself.

The page gets a token from here, and asks here what a request was charged, by its id. No message passes through.
"""

import asyncio
import json
import re
from typing import Final

from starlette.responses import JSONResponse, Response

from console.account import usage
from console.account.allowed_classes import auto_class, may_use
from console.display.snippets import conversation_snippets
from console.display.words import time_of
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.metering.v1 import metering_pb2
from legato_protos.router.v1.router_pb2 import ListModelsRequest
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import format_usd
from services.rules import model_classes

REQUEST_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,100}")
# As the edge estimates what it holds at first (edge/billing/hold.py, prompt_estimate.py); a test compares them.
UNSEEN_PROMPT_TOKENS: Final = 128
FIRST_SLICE_TOKENS: Final = 4096
# The cheapest first. Those that have a price are offered, or all of them where metering does not answer.
CLASSES: Final = (model_classes.AUTO, *model_classes.CLASSES)

TOOL_EXAMPLE: Final = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "The weather of a city, now.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            },
        }
    ],
    indent=2,
)

# What the script says.
WORDS: Final = {
    "user": "You",
    "assistant": "Answer",
    "tool": "Result of %s",
    "calls": "Calls %s",
    "result": "Your result of %s",
    "sendResults": "Send the results",
    "results": "The model waits for the results above.",
    "answering": "Answering …",
    "finished": "The answer is complete.",
    "stopped": "Stopped. The model stops too, and you are charged for what was delivered.",
    "cut": "The answer was cut off. You are charged for what was delivered.",
    "length": "The answer ended at its token limit.",
    "filtered": "The provider ended the answer by its content filter.",
    "tokens": "%s tokens in, %s out",
    "cached": "%s tokens in (%s cached), %s out",
    "first": "first after %s s",
    "cost": "Cost $%s",
    "free": "Not charged",
    "asking": "Cost …",
    "later": "Cost not known yet",
    "receipt": "Receipt",
    "sources": "Sources",
    "code": "Code",
    "badJson": "This is not JSON: %s",
    "badTools": 'Tools are a list, such as [{"type": "function", …}].',
    "goodTools": "Tools: %s",
    "retry": "Try again in %s s.",
    "request": "Request %s",
    "atMost": "Costs at most about $%s: a prompt of about %s tokens, and %s tokens of answer.",
    "atFirst": "Holds about $%s at first: a prompt of about %s tokens, %s of answer. A token limit caps the cost.",
    "credit": "Free credit $%s.",
    "tooLittle": "This is more than your free credit of $%s: the answer may end early.",
}


async def show(visit: Visit) -> Response:
    balance, prices, account, listed = await asyncio.gather(
        usage.balance(visit),
        usage.read_prices(visit),
        visit.optional(visit.read_account(), "account"),
        visit.optional(visit.router.router.ListModels(ListModelsRequest()), "models"),
    )
    # The classes that are answered by the model that comes with Legato.
    bundled = {model.model_id for model in listed.models if model.is_bundled} if listed else set[str]()
    models = [name for name in CLASSES if name == "auto" or name in prices] if prices else CLASSES
    auto = "" if account is None else auto_class(account)
    programs = conversation_snippets(visit.console.api_url)
    offered = [name for name in models if account is None or may_use(account, name)]
    return visit.render(
        "playground.html",
        models=offered,
        bundled=[name for name in offered if name in bundled],
        is_all_bundled=bundled.issuperset(name for name in offered if name != "auto"),
        balance=balance,
        snippets=programs,
        snippet_templates={program.language: program.template for program in programs},
        tool_example=TOOL_EXAMPLE,
        texts=WORDS,
        advice=advice(visit),
        auto=auto,
        costs=_costs(balance, prices, auto),
    )


def _costs(balance: metering_pb2.Balance | None, prices: usage.Prices, auto: str) -> dict[str, object]:
    """Returns what the script needs to tell, before anything is sent, what it can cost."""
    by_class = {name: [price.input_nanos_per_million, price.output_nanos_per_million] for name, price in prices.items()}
    if auto in by_class:
        by_class["auto"] = by_class[auto]
    free_nanos = None if balance is None else balance.balance_nanos - balance.held_nanos - balance.owed_nanos
    return {"prices": by_class, "free": free_nanos, "unseen": UNSEEN_PROMPT_TOKENS, "slice": FIRST_SLICE_TOKENS}


def advice(visit: Visit) -> dict[str, str]:
    """Returns what to do about an error, by its code or status."""
    return {
        "insufficient_quota": (
            "This account has no credit left. Nothing was sent to a model. Ask the operator to grant more."
        ),
        "credits_held": "The rest of your credit is held for answers that are running. Wait until one has ended.",
        "spend_limit_exceeded": (
            "A spend limit of this account is reached. Nothing was sent to a model. An owner can raise it on the page "
            "Spend limits."
        ),
        "rate_limit_exceeded": "This account sends more than its limit allows. Wait a moment, then send it again.",
        "concurrency_limit_exceeded": "Too many answers run at once. Wait until one has ended.",
        "saturated": "All models of this class are busy. Wait a moment, or choose another class.",
        "invalid_api_key": "The playground's token was ended, for example because you signed out elsewhere.",
        "account_suspended": "An operator has suspended this account. Only an operator can resume it.",
        "context_length_exceeded": (
            "The conversation is longer than the model can read. Clear it, or shorten a message."
        ),
        "maintenance": "The service is under maintenance.",
        "upstream_error": "The model's provider failed. Send it again, or choose another class.",
        "400": "Look at the parameters and tools: the message says which one.",
        "500": "This is the service's fault. Send it again; if it stays, tell an operator the request's id.",
        "unreachable": (
            f"The page cannot reach the API at {visit.console.api_url}. Is it running, and does LEGATO_CORS_ORIGINS or "
            f"LEGATO_CONSOLE_URL of the edges allow {visit.origin}?"
        ),
        "signed_out": "You are signed out. Sign in again in another tab, then send it again: nothing here is lost.",
    }


async def create_token(visit: Visit) -> Response:
    request = pb.CreatePlaygroundTokenRequest(account_id=visit.account_id)
    made = await visit.auth.accounts.CreatePlaygroundToken(request)
    valid_s = max(0.0, (time_of(made.expire_time) - visit.now).total_seconds())
    return JSONResponse({"token": made.playground_token, "valid_s": valid_s})


async def read_cost(visit: Visit) -> Response:
    """Answers with what the ledger charged for a request; none while it runs."""
    request_id = visit.form.get("request_id")
    if not REQUEST_ID.fullmatch(request_id):
        raise LegatoError(Reason.REQUEST_INVALID, "This is not the id of a request.")
    request = metering_pb2.GetRequestRequest(account_id=visit.account_id, request_id=request_id)
    found = await visit.metering.metering.GetRequest(request)
    if found.state == metering_pb2.REQUEST_STATE_RUNNING:
        return JSONResponse({})
    return JSONResponse(
        {
            "usd": format_usd(found.charged_nanos),
            "input_tokens": found.usage.prompt_tokens,
            "cached_tokens": found.usage.cached_tokens,
            "output_tokens": found.usage.completion_tokens,
        }
    )
