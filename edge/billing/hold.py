"""The credit that one chat holds, from its reservation until it is settled."""

import asyncio

from msgspec.structs import replace

from edge.backends.auth import Principal
from edge.backends.exchanges import ChatCall
from edge.billing.journal import OPEN, Journal, Slot, SlotPassedOn
from edge.billing.metering import Metering
from edge.billing.prompt_estimate import UNSEEN_PROMPT_TOKENS
from edge.billing.rate_limits import Admission
from edge.billing.settlements import NO_DETAILS, ChatDetails
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.router.v1.router_pb2 import ChatRequest, Grant, Need
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_UNSPECIFIED, ChatApi
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason, credits_held
from services.chassis.process import failpoints
from services.chassis.sentence import Sentence
from services.chassis.sentence_messages import from_sentence_message
from services.rules.cost import MILLION, cost_nanos

# The most output held at first; the hold grows with the answer.
FIRST_SLICE_TOKENS = 4096
LONGEST_OUTPUT_TOKENS = 131_072
# Used if output is free: more than any answer has.
MOST_OUTPUT_TOKENS = 10**9

# For shorter prompts the router need not report acceptance, unless the account's clients often disconnect.
NOTABLE_PROMPT_TOKENS = 2048

REFUSALS = frozenset(
    {
        Reason.RATE_LIMITED,
        Reason.CREDITS_EXHAUSTED,
        Reason.CREDITS_HELD,
        Reason.SPEND_LIMIT_EXCEEDED,
        Reason.SPEND_LIMIT_SPENT,
        Reason.TOO_MANY_AT_ONCE,
        Reason.REQUEST_REPEATED,
        Reason.IDEMPOTENCY_KEY_REUSED,
    }
)
NOTHING = Usage()


class ChatHold:
    def __init__(
        self,
        metering: Metering,
        journal: Journal,
        principal: Principal,
        request_id: str,
        class_id: str,
        api: "ChatApi.ValueType" = CHAT_API_UNSPECIFIED,
    ) -> None:
        self._metering = metering
        self._journal = journal
        self._principal = principal
        self.request_id = request_id
        self.class_id = class_id
        self.api = api
        # Prices per million tokens, fixed when the credit was held.
        self._price = pb.Price()
        self._held_nanos = 0
        # The account's balance; known once it could not hold what was needed.
        self._balance_nanos = 0
        # Estimated tokens of the client's prompt; 0 until credit is held.
        self._asked_tokens = 0
        # True if the router should report when a provider accepts the prompt, in case the client disconnects.
        self.tells_acceptance = False
        self._slot: Slot | None = None
        self._asked_again = False
        # The router asks for one thing at a time.
        self._answering: asyncio.Task[None] | None = None
        # True once the account could not hold what was needed.
        self.spent = False
        # Set if that is because of a spend limit.
        self.spend_limit_refusal: LegatoError | None = None
        # Empty until it is settled.
        self.charged = NOTHING

    async def reserve(
        self,
        prompt_tokens: int,
        max_tokens: int | None,
        claim: pb.IdempotencyClaim | None = None,
        *,
        whole: bool = False,
        admission: Admission | None = None,
    ) -> Grant:
        """Holds credit for the prompt and a first slice of output; raises one of REFUSALS. A pending admission is asked
        for with it.

        Holds all of the output if the answer is `whole` and the account can well afford it: then the router need not
        ask for more while it gathers the answer."""
        most_tokens = min(max_tokens or LONGEST_OUTPUT_TOKENS, LONGEST_OUTPUT_TOKENS)
        principal = self._principal
        self._slot = slot = self._journal.claim(self.request_id, principal.account_id, self.class_id)
        failpoints.hit("edge.claimed")
        try:
            reserved = await self._metering.reserve(
                pb.ReserveRequest(
                    request_id=self.request_id,
                    account_id=self._principal.account_id,
                    key_id=self._principal.key_id,
                    class_id=self.class_id,
                    prompt_tokens=prompt_tokens,
                    output_tokens=min(most_tokens, FIRST_SLICE_TOKENS),
                    whole_output_tokens=most_tokens if whole else 0,
                    claim=claim,
                    concurrent_requests=self._principal.concurrent_requests,
                    api=self.api,
                ),
                self._record_repeat,
                admission,
            )
        except LegatoError as error:
            if error.reason in REFUSALS and not self._asked_again:
                # A refusal stores nothing, so there is nothing to give back. After a retry, the other copy of the call
                # may still be under way, and must find the request void.
                slot.free()
            raise
        failpoints.hit("edge.reserved")
        self._price = reserved.price
        self._held_nanos = reserved.held_nanos
        self._asked_tokens = max(0, prompt_tokens - UNSEEN_PROMPT_TOKENS)
        self.tells_acceptance = reserved.has_habit_of_leaving or self._asked_tokens >= NOTABLE_PROMPT_TOKENS
        return self.grant(prompt_tokens)

    def _record_repeat(self) -> None:
        self._asked_again = True

    def answer(self, call: ChatCall, need: Need, delivered: Usage) -> None:
        """Answers the router's request for credit in a task, so that further responses are not delayed."""
        self._answering = asyncio.create_task(self._answer(call, need, delivered))

    async def _answer(self, call: ChatCall, need: Need, delivered: Usage) -> None:
        try:
            grant = await self.grow(need.prompt_tokens, need.output_tokens, delivered)
        except LegatoError:
            # Repeats the present grant: the router need not wait, and asks again when that is used up.
            grant = self.grant(need.prompt_tokens)
        call.send(ChatRequest(grant=grant))

    def stop_answering(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
            # A cancelled task keeps its traceback, and with it what was to be delivered.
            self._answering = None

    async def grow(self, prompt_tokens: int, output_tokens: int, delivered: Usage) -> Grant:
        """Holds enough for these totals, or as near to it as the account affords.

        Reports what was delivered so far, in case this edge crashes before it settles.
        """
        total_nanos = self._cost_nanos(prompt_tokens, output_tokens)
        if total_nanos > self._held_nanos:
            answer = await self._ask_for(total_nanos, delivered)
            if not answer.extended and answer.affordable_nanos > self._held_nanos:
                # The rest of the credit covers a part of it.
                await self._ask_for(answer.affordable_nanos, delivered)
            self.spent = self.spent or total_nanos > self._held_nanos
        return self.grant(prompt_tokens)

    def grant(self, prompt_tokens: int) -> Grant:
        """Returns the grant for what is held, less the prompt."""
        return Grant(
            prompt_tokens=prompt_tokens,
            output_tokens=max(0, self.covered_output_tokens(prompt_tokens)),
            last=self.spent,
            held_elsewhere=self.spent and self._is_held_elsewhere(prompt_tokens, 1),
        )

    def refusal(self, prompt_tokens: int, output_tokens: int) -> LegatoError:
        """Returns the error for an answer whose first piece costs more than the account could hold."""
        if self._is_held_elsewhere(prompt_tokens, output_tokens):
            return credits_held()
        if self.spend_limit_refusal is not None:
            return self.spend_limit_refusal
        return LegatoError(Reason.CREDITS_EXHAUSTED, Sentence("credit_too_small"))

    @property
    def cut_by(self) -> str:
        """The reason why an answer that needed more credit was ended."""
        return "credit" if self.spend_limit_refusal is None else "spend_limit"

    def covered_output_tokens(self, prompt_tokens: int) -> int:
        """Returns how much output the hold covers beside the prompt; -1 if it does not cover the prompt. It is rounded
        once, like the cost, so that what is held for a number of tokens covers that number."""
        left = self._held_nanos * MILLION - prompt_tokens * self._price.input_nanos_per_million
        if left < 0:
            return -1
        output_nanos = self._price.output_nanos_per_million
        return min(left // output_nanos, MOST_OUTPUT_TOKENS) if output_nanos else MOST_OUTPUT_TOKENS

    def _cost_nanos(self, prompt_tokens: int, output_tokens: int) -> int:
        return cost_nanos(self._price, Usage(prompt_tokens=prompt_tokens, completion_tokens=output_tokens))

    def charge_nanos(self, usage: Usage) -> int:
        """Returns what an answer with this usage is charged; once it is settled, what it was."""
        return cost_nanos(self._price, self.charged if self.is_resolved else usage)

    @property
    def slot(self) -> Slot:
        """The chat's slot in the journal, once it was claimed."""
        if self._slot is None:
            raise SlotPassedOn
        return self._slot

    @property
    def is_resolved(self) -> bool:
        """True if there is nothing to settle: it is settled, was refused, or was never reserved."""
        return self._slot is None or self._slot.kind != OPEN

    def settle(
        self, usage: Usage, basis: "pb.Basis.ValueType", end: "pb.End.ValueType", details: ChatDetails = NO_DETAILS
    ) -> None:
        """Charges what was used, once; later calls for the same chat do nothing."""
        slot = self._slot
        if slot is not None and slot.kind == OPEN:
            slot.seal(usage, basis, end)
            self.charged = usage
            failpoints.hit("edge.sealed")
            self._metering.resolve(slot, replace(details, usage=usage))

    def void(self, end: "pb.End.ValueType", details: ChatDetails = NO_DETAILS, accepted_prompt_tokens: int = 0) -> None:
        """Charges nothing, as nothing was delivered. Metering may still charge a prompt that a provider has accepted,
        if clients of this account often disconnect."""
        if end == pb.END_CLIENT_GONE:
            details = replace(
                details, unpaid_prompt_tokens=self._asked_tokens, accepted_prompt_tokens=accepted_prompt_tokens
            )
        self.settle(NOTHING, pb.BASIS_UNSPECIFIED, end, details)

    async def _ask_for(self, total_nanos: int, delivered: Usage) -> pb.ExtendResponse:
        answer = await self._metering.extend(
            pb.ExtendRequest(
                request_id=self.request_id,
                account_id=self._principal.account_id,
                total_nanos=total_nanos,
                delivered=delivered,
            )
        )
        failpoints.hit("edge.extended")
        if answer.extended and answer.total_nanos == total_nanos:
            self._held_nanos = max(self._held_nanos, total_nanos)
        if not answer.extended:
            self._balance_nanos = answer.balance_nanos
            self.spend_limit_refusal = _refusal_of(answer.spend_limit) if answer.HasField("spend_limit") else None
        return answer

    def _is_held_elsewhere(self, prompt_tokens: int, output_tokens: int) -> bool:
        return self._held_nanos < self._cost_nanos(prompt_tokens, output_tokens) <= self._balance_nanos


def _refusal_of(reached: pb.SpendLimitReached) -> LegatoError:
    sentence = from_sentence_message(reached.sentence, reached.message)
    if not reached.HasField("retry_after"):
        return LegatoError(Reason.SPEND_LIMIT_SPENT, sentence)
    retry_after_s = reached.retry_after.ToMicroseconds() / 1e6
    return LegatoError(Reason.SPEND_LIMIT_EXCEEDED, sentence, retry_after_s=retry_after_s)
