"""The preview of what a model sees: the notes and passages that a question brings, with their tokens and price."""

import asyncio
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from console.account.allowed_classes import auto_class, may_use
from console.account.grounding import GroundingSources
from console.account.usage import read_prices
from console.display.language import _
from console.display.words import significant_places
from console.web.forms import Refusal
from console.web.refusals import shows_again
from console.web.visit import Visit
from legato_protos.metering.v1 import metering_pb2
from legato_protos.router.v1 import grounding_pb2 as pb
from services.chassis.errors import Reason
from services.rules.cost import MILLION
from services.rules.model_classes import AUTO

# Of the whole price; the parts have as many places, so that they add up as one reads them.
TABLE_DIGITS: Final = 5


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A part of the prompt."""

    title: str
    tokens: int
    # None: the price is not known.
    cost_nanos: int | None


async def show(
    visit: Visit, refusal: Refusal | None = None, found: pb.PreviewGroundingResponse | None = None
) -> Response:
    account, prices = await asyncio.gather(visit.read_account(), read_prices(visit))
    price = prices.get(found.class_id) if found else None
    parts = _parts(found, price) if found else []
    tokens = sum(part.tokens for part in parts)
    return visit.render(
        "preview.html",
        refusal=refusal,
        sources=GroundingSources(found.config if found else pb.GroundingConfig(), account),
        classes=sorted(
            (class_id for class_id in prices if may_use(account, class_id)),
            key=lambda class_id: prices[class_id].input_nanos_per_million,
        ),
        question=visit.form.get("question"),
        chosen=visit.form.get("class") or AUTO,
        found=found,
        parts=parts,
        tokens=tokens,
        cost_nanos=_cost_nanos(tokens, price),
        places=significant_places(_cost_nanos(tokens, price) or 0, TABLE_DIGITS),
        added=_added(found, price) if found else None,
        price=price,
    )


@shows_again(show, "question", reasons=(Reason.REQUEST_INVALID, Reason.MODEL_UNKNOWN))
async def preview(visit: Visit) -> Response:
    account = await visit.read_account()
    request = pb.PreviewGroundingRequest(
        account_id=account.account_id,
        question=visit.form.get("question"),
        model=visit.form.get("class") or AUTO,
        preferred_class=auto_class(account),
        search=account.search,
        memory=account.memory,
        attachments=account.attachments,
        allowed_classes=account.allowed_classes if account.HasField("allowed_classes") else None,
    )
    return await show(visit, found=await visit.router.grounding.PreviewGrounding(request))


def _parts(found: pb.PreviewGroundingResponse, price: metering_pb2.Price | None) -> list[PromptPart]:
    notes, passages = (sum(each.tokens for each in listed) for listed in (found.notes, found.passages))
    counted = (
        (_("Character of the class"), found.tokens.character),
        # As they are listed, and as the page of the notes counts them.
        (_("Notes"), notes),
        (_("Passages of documents"), passages),
        (_("What introduces them"), found.tokens.notes + found.tokens.passages - notes - passages),
        (_("Search function"), found.tokens.search),
        (_("Your question"), found.tokens.question),
    )
    return [PromptPart(title, tokens, _cost_nanos(tokens, price)) for title, tokens in counted if tokens]


def _added(found: pb.PreviewGroundingResponse, price: metering_pb2.Price | None) -> PromptPart:
    tokens = found.tokens.notes + found.tokens.passages + found.tokens.search
    return PromptPart(_("Added to your question"), tokens, _cost_nanos(tokens, price))


def _cost_nanos(tokens: int, price: metering_pb2.Price | None) -> int | None:
    """Returns what a provider that has nothing of it in its cache costs, rounded up as a charge is."""
    return None if price is None else -(-tokens * price.input_nanos_per_million // MILLION)
