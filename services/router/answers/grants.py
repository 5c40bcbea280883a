"""Tracks how much of one chat the caller's credit covers, and requests more.

Counts are absolute: a grant of 200 after one of 100 covers 200 tokens in total.
"""

import asyncio
import sys
from collections.abc import Sequence

from legato_protos.router.v1.router_pb2 import ChatRequest, ChatResponse, Grant, Need
from services.chassis.errors import LegatoError, Reason, credits_held
from services.chassis.exchange.methods import CallStream
from services.chassis.sentence import Sentence

# An edge answers a need within seconds, even if metering is down. But it reads the need only after everything sent
# before it, and its client may stop reading for a minute. If either disconnects, that ends the chat.
ANSWER_WITHIN_S = 90.0

ChatConversation = CallStream[ChatRequest, ChatResponse]


class TokenAllowance:
    def __init__(
        self, conversation: ChatConversation, grant: Grant | None, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        """`grant` is None if the whole answer is known to be covered."""
        self._conversation = conversation
        self._answer_within_s = answer_within_s
        self._grant = grant
        self._prompt_tokens = 0
        # Tokens used by earlier rounds of the same answer.
        self._prompt_tokens_before = 0
        self.output_tokens_before = 0
        # The pending reply to a need; there is at most one.
        self._answer: asyncio.Future[ChatRequest] | None = None
        self._asks_ahead = True
        self._reporting: asyncio.Task[None] | None = None
        self._max_tokens = self._longest_tokens = sys.maxsize
        # Output up to this count is passed on at once: it is within the limit and covered, and there is nothing to
        # request or to wait for.
        self.covered_tokens = 0
        self._record_covered()

    def limit(self, max_tokens: int, longest_tokens: int) -> None:
        """Sets the output limit of the model, and the longest answer, by our count, that respects it."""
        self._max_tokens, self._longest_tokens = max_tokens, longest_tokens
        self._record_covered()

    def begin_round(self, prompt_tokens: int, output_tokens: int) -> None:
        """Starts another round of the same answer; the counts are the totals of all rounds so far."""
        self._prompt_tokens_before = prompt_tokens
        self.output_tokens_before = output_tokens

    def continue_answer(self, repeated_tokens: int, output_tokens: int) -> None:
        """Goes on with the same answer by another call: so many tokens of its prompt are the answer so far, which is
        covered as output."""
        self.begin_round(-repeated_tokens, output_tokens)

    def fit(self, max_tokens: int) -> int:
        """Returns the output limit for the model, reduced to the grant if no more credit can follow."""
        if self._grant is not None and self._grant.last:
            return min(max_tokens, self._grant.output_tokens - self.output_tokens_before)
        return max_tokens

    def covers(self, max_tokens: int) -> bool:
        """Returns whether the grant covers so many tokens of output."""
        return self._grant is None or self._grant.output_tokens >= self.output_tokens_before + max_tokens

    async def cover_prompt(self, prompt_tokens: int) -> None:
        """Ensures, before the model is called, that the prompt and one output token are covered."""
        self._prompt_tokens = total_prompt_tokens = self._prompt_tokens_before + prompt_tokens
        if self._grant is None:
            return
        least_output_tokens = self.output_tokens_before + 1
        if self._covers(total_prompt_tokens, least_output_tokens):
            return
        if self._answer is not None:
            # Waits for the reply to the previous round's request.
            await self._wait_for(self._answer)
        if not self._covers(total_prompt_tokens, least_output_tokens) and not self._grant.last:
            await self._wait_for(await self._request_grant(max(least_output_tokens, self._grant.output_tokens)))
        if not self._covers(total_prompt_tokens, least_output_tokens):
            raise self._refusal()

    def report_sent(self, ignored: Sequence[str], *, accepted: bool) -> None:
        """Reports what was left out of a request that has been sent, and, if that is of interest, that a provider has
        the prompt: a client that disconnects now may be charged for it. So it is not delayed to be sent with others."""
        if not accepted and not ignored:
            return
        prompt_tokens = self._prompt_tokens if accepted else 0
        sent = ChatResponse(accepted=accepted, prompt_tokens=prompt_tokens, ignored=ignored)
        self._reporting = asyncio.create_task(self._conversation.send(sent))

    async def cover_output(self, output_tokens: int, max_tokens: int) -> int:
        """Returns how many output tokens may be passed on. Requests credit ahead; waits only at the grant's end."""
        if self._grant is None:
            return output_tokens
        if self._answer is not None and self._answer.done():
            granted_tokens = self._grant.output_tokens
            self._apply_answer(self._answer.result())
            # If no more could be held, do not ask with every piece, but once more at the grant's end.
            self._asks_ahead = self._grant.output_tokens > granted_tokens
            self._record_covered()
        while self._grant.output_tokens < max_tokens and not self._grant.last:
            granted_tokens = self._grant.output_tokens
            if 2 * output_tokens < granted_tokens or (output_tokens <= granted_tokens and not self._asks_ahead):
                break
            wanted_tokens = min(max(2 * granted_tokens, output_tokens), max_tokens)
            answer = self._answer or await self._request_grant(wanted_tokens)
            if output_tokens <= granted_tokens:
                break
            await self._wait_for(answer)
            if self._grant.output_tokens <= granted_tokens and not self._grant.last:
                # Asking again would loop forever with the same reply.
                raise _not_held()
        if self._grant.output_tokens >= max_tokens:
            # The model applies max_tokens by its own count, which may be slightly below ours.
            return output_tokens
        return min(output_tokens, self._grant.output_tokens)

    def close(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
        if self._answer is not None and not self._answer.cancel() and not self._answer.cancelled():
            # Retrieves the exception so that asyncio does not log it as never retrieved.
            self._answer.exception()

    def _covers(self, prompt_tokens: int, output_tokens: int) -> bool:
        grant = self._grant
        return grant is None or (grant.prompt_tokens >= prompt_tokens and grant.output_tokens >= output_tokens)

    def _refusal(self) -> LegatoError:
        if self._grant is None or not self._grant.last:
            return _not_held()
        if self._grant.held_elsewhere and not self._prompt_tokens_before:
            return credits_held()
        # After the first round an answer has begun, so this ends it, even if the credit is held elsewhere.
        return LegatoError(Reason.CREDITS_EXHAUSTED, Sentence("prompt_credit_too_small"))

    async def _request_grant(self, output_tokens: int) -> "asyncio.Future[ChatRequest]":
        need = Need(prompt_tokens=self._prompt_tokens, output_tokens=output_tokens)
        await self._conversation.send(ChatResponse(need=need))
        self._answer = answer = asyncio.ensure_future(self._conversation.receive())
        answer.add_done_callback(self._record_covered)
        self._record_covered()
        return answer

    async def _wait_for(self, answer: "asyncio.Future[ChatRequest]") -> None:
        await asyncio.wait({answer}, timeout=self._answer_within_s)
        if not answer.done():
            raise _not_held()
        self._apply_answer(answer.result())

    def _apply_answer(self, answer: ChatRequest) -> None:
        self._answer = None
        if answer.WhichOneof("kind") != "grant":
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("grant_expected"))
        self._grant = answer.grant
        self._record_covered()

    def _record_covered(self, _: object = None) -> None:
        grant, answer = self._grant, self._answer
        if grant is None or grant.output_tokens >= self._max_tokens:
            self.covered_tokens = self._longest_tokens
            return
        is_asked = answer is not None and not answer.done()
        may_ask = answer is not None or (self._asks_ahead and not grant.last)
        # More is requested once half of the grant is used, unless that has been done, or would be in vain.
        covered_tokens = grant.output_tokens if is_asked or not may_ask else (grant.output_tokens - 1) // 2
        self.covered_tokens = min(covered_tokens, self._longest_tokens)


def _not_held() -> LegatoError:
    return LegatoError(Reason.UNAVAILABLE, Sentence("grant_late"), retry_after_s=1)
