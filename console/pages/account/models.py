"""The models: what each class is for, what it costs, how long its questions and answers may be, and how fast it is."""

import asyncio
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from console.account import usage
from console.account.allowed_classes import auto_class, may_use
from console.display.language import N_
from console.display.words import exact_places
from console.web.visit import Visit
from legato_protos.metering.v1 import metering_pb2
from legato_protos.router.v1 import router_pb2
from services.rules.cost import cost_nanos
from services.rules.model_classes import CLASSES

PURPOSES: Final = {
    "mezzo": N_("For short questions, sorting and summing up, and whatever is asked very often. The cheapest."),
    "forte": N_("For everyday work: writing, answers from documents, code, tools. The one to begin with."),
    "fortissimo": N_(
        "For what the others get wrong: hard questions, long code, plans of many steps. The most expensive."
    ),
}


@dataclass(frozen=True, slots=True)
class TypicalChat:
    """A typical chat: cached tokens are included in the prompt's."""

    title: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


CHATS: Final = (
    TypicalChat(N_("A short question"), 200, 0, 300),
    TypicalChat(N_("A long document, summed up"), 20_000, 0, 800),
    TypicalChat(N_("An agent's turn, most of it cached"), 12_000, 10_000, 500),
)


@dataclass(frozen=True, slots=True)
class ModelClass:
    class_id: str
    is_auto: bool
    is_allowed: bool
    # None: metering, or the router, does not answer.
    price: metering_pb2.Price | None
    model: router_pb2.Model | None
    # Of the account in the last 30 days; None: none, or metering does not answer.
    used: metering_pb2.UsageRow | None

    @property
    def purpose(self) -> str:
        return PURPOSES[self.class_id]

    def cost_nanos(self, chat: TypicalChat) -> int | None:
        """Returns what a chat costs; None if the class has no price, or its models cannot take so much."""
        if self.price is None or (self.model is not None and not _fits(chat, self.model)):
            return None
        return cost_nanos(self.price, chat)

    @property
    def places(self) -> int:
        """Returns how many places show the costs of all typical chats exactly."""
        return exact_places(*(self.cost_nanos(chat) or 0 for chat in CHATS))

    @property
    def mean_cost_nanos(self) -> int | None:
        """Returns what a chat of the account has cost on average."""
        used = self.used
        return (used.cost_nanos + used.requests // 2) // used.requests if used and used.requests else None


async def show(visit: Visit) -> Response:
    prices, models, account, used = await asyncio.gather(
        usage.read_prices(visit),
        visit.optional(visit.router.router.ListModels(router_pb2.ListModelsRequest()), "models"),
        visit.optional(visit.read_account(), "account"),
        usage.read_recent_usage(visit, by_class=True),
    )
    by_id = {model.model_id: model for model in models.models} if models else {}
    used_by_id = {row.class_id: row for row in used or ()}
    auto = "" if account is None else auto_class(account)
    classes = [
        ModelClass(
            class_id,
            class_id == auto,
            account is None or may_use(account, class_id),
            prices.get(class_id),
            by_id.get(class_id),
            used_by_id.get(class_id),
        )
        for class_id in CLASSES
    ]
    return visit.render(
        "models.html",
        classes=classes,
        priced=[each for each in classes if each.price is not None],
        chats=CHATS,
        auto=auto,
        has_prices=bool(prices),
        has_models=models is not None,
        has_usage=used is not None,
    )


def _fits(chat: TypicalChat, model: router_pb2.Model) -> bool:
    tokens = chat.prompt_tokens + chat.completion_tokens
    return tokens <= model.context_tokens and chat.completion_tokens <= model.max_output_tokens
