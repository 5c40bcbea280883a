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
from console.display.language import N_, _
from console.display.snippets import conversation_snippets
from console.display.words import time_of
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.metering.v1 import metering_pb2
from legato_protos.router.v1.router_pb2 import ListModelsRequest
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import format_usd
from services.chassis.sentence import Sentence
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
    "user": N_("You"),
    "assistant": N_("Answer"),
    "answerOf": N_("Answer of %(model)s"),
    "edit": N_("Edit"),
    "editing": N_("Your message, again"),
    "sendAgain": N_("Send again"),
    "cancel": N_("Cancel"),
    "retryAnswer": N_("Retry"),
    "tool": N_("Result of %(name)s"),
    "calls": N_("Calls %(name)s"),
    "result": N_("Your result of %(name)s"),
    "resultFor": N_("Your result of %(name)s for %(model)s"),
    "sendResults": N_("Send the results"),
    "results": N_("The model waits for the results above."),
    "answering": N_("Answering …"),
    "finished": N_("The answer is complete."),
    "finishedBoth": N_("Both answers are complete."),
    "stopped": N_("Stopped. The model stops too, and you are charged for what was delivered."),
    "cut": N_("The answer was cut off. You are charged for what was delivered."),
    "none": N_("There is no answer: the message below says why."),
    "ended_length": N_("The answer ended at its token limit."),
    "ended_content_filter": N_("The provider ended the answer by its content filter."),
    "tokens": N_("%(read)s tokens in, %(written)s out"),
    "cached": N_("%(read)s tokens in (%(cached)s cached), %(written)s out"),
    "first": N_("First token after %(seconds)s s"),
    "cost": N_("Cost %(cost)s"),
    "free": N_("Not charged"),
    "asking": N_("Cost …"),
    "later": N_("Cost not known yet"),
    "receipt": N_("Receipt"),
    "sources": N_("Sources"),
    "code": N_("Code"),
    "copy": N_("Copy"),
    "copied": N_("Copied"),
    "table": N_("Table"),
    "badJson": N_("This is not JSON: %(problem)s"),
    "badTools": N_('Tools are a list, such as [{"type": "function", …}].'),
    "goodTools": N_("Tools: %(names)s"),
    "retry": N_("Try again in %(time)s."),
    "request": N_("Request %(id)s"),
    "atMost": N_("Costs at most about %(cost)s: a prompt of about %(prompt)s tokens, and %(answer)s tokens of answer."),
    "atFirst": N_(
        "Holds about %(cost)s at first: a prompt of about %(prompt)s tokens, %(answer)s of answer. A token limit caps "
        "the cost."
    ),
    "atMostBoth": N_("Both together cost at most about %(cost)s: %(each)s."),
    "atFirstBoth": N_("Both together hold about %(cost)s at first: %(each)s. A token limit caps the cost."),
    "credit": N_("Free credit %(credit)s."),
    "tooLittle": N_("This is more than your free credit of %(credit)s: the answer may end early."),
    "added": N_("Notes, documents and search results that fit the question are not in it: they come on top."),
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
        texts={name: _(text) for name, text in WORDS.items()},
        advice=advice(visit),
        auto=auto,
        costs=_costs(balance, prices, auto)
        | {"adds": account is not None and (account.memory or account.attachments or account.search)},
    )


def _costs(balance: metering_pb2.Balance | None, prices: usage.Prices, auto: str) -> dict[str, object]:
    """Returns what the script needs to tell, before anything is sent, what it can cost."""
    by_class = {name: [price.input_nanos_per_million, price.output_nanos_per_million] for name, price in prices.items()}
    if auto in by_class:
        by_class["auto"] = by_class[auto]
    free_nanos = None if balance is None else usage.free_nanos(balance)
    return {"prices": by_class, "free": free_nanos, "unseen": UNSEEN_PROMPT_TOKENS, "slice": FIRST_SLICE_TOKENS}


def advice(visit: Visit) -> dict[str, str]:
    """Returns what to do about an error, by its code or status."""
    return {
        "insufficient_quota": _(
            "This account has no credit left. Nothing was sent to a model. Ask the operator to grant more."
        ),
        "credits_held": _("The rest of your credit is held for answers that are running. Wait until one has ended."),
        "spend_limit_exceeded": _(
            "A spend limit of this account is reached. Nothing was sent to a model. An owner can raise it on the page "
            "Spend limits."
        ),
        "rate_limit_exceeded": _("This account sends more than its limit allows. Wait a moment, then send it again."),
        "concurrency_limit_exceeded": _("Too many answers run at once. Wait until one has ended."),
        "saturated": _("All models of this class are busy. Wait a moment, or choose another class."),
        "invalid_api_key": _("The playground's token was ended, for example because you signed out elsewhere."),
        "account_suspended": _("An operator has suspended this account. Only an operator can resume it."),
        "context_length_exceeded": _(
            "The conversation is longer than the model can read. Clear it, or shorten a message."
        ),
        "maintenance": _("The service is under maintenance."),
        "upstream_error": _("The model's provider failed. Send it again, or choose another class."),
        "400": _("Look at the parameters and tools: the message says which one."),
        "500": _("This is the service's fault. Send it again; if it stays, tell an operator the request's ID."),
        "unreachable": _(
            "The page cannot reach the API at %(address)s. Is it running, and does LEGATO_CORS_ORIGINS or "
            "LEGATO_CONSOLE_URL of the edges allow %(origin)s?",
            address=visit.console.api_url,
            origin=visit.origin,
        ),
        "signed_out": _("You are signed out. Sign in again in another tab, then send it again: nothing here is lost."),
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
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("request_id_unlike"))
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
