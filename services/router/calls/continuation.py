"""Continues an answer of plain text that was cut, at another model, in the stream that the client already reads.

The other model gets the prompt and the answer so far, and nothing else, so that it goes on in the same manner. The
client is charged for the prompt once, and for the text that it received, by our count: no provider knows the usage of
an answer that two of them wrote.
"""

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from msgspec import structs

from legato_protos.router.v1.router_pb2 import (
    USAGE_SOURCE_COUNTED,
    USAGE_SOURCE_PROVIDER,
    ChatOpen,
    Finished,
    UsageSource,
)
from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason, forget_origin
from services.chassis.process import failpoints
from services.router.answers.answer_end import AnswerEnd
from services.router.answers.grants import TokenAllowance
from services.router.answers.relay import Relay
from services.router.answers.seam import Seam
from services.router.answers.transcript import Transcript
from services.router.calls.chat_limits import with_max_tokens
from services.router.calls.upstream import Upstream
from services.router.models.spending import describe_call
from services.router.models.states import ModelState
from services.router.prompts.answer_prefix import PrefixStyle
from services.router.prompts.prompt import TOKENS_PER_MESSAGE, Prompt
from services.router.providers.base import ProviderError, ProviderUsage

MOST_CONTINUATIONS: Final = 2
# What is kept of one chat while it is answered; a longer prompt or answer is not continued.
LARGEST_PROMPT_BYTES: Final = 1024 * 1024
LARGEST_ANSWER_BYTES: Final = 1024 * 1024


class OpenContinuation(Protocol):
    def __call__(self, chat: ChatOpen, prompt: Prompt, seam: Seam, cut: ModelState) -> Awaitable[Upstream]:
        """Opens a call to a model that can continue the answer; its pieces are offered to the seam."""
        ...


def may_be_continued(chat: ChatOpen, prompt: Prompt) -> bool:
    """Returns whether the prompt and the answer are to be kept, so that another model of the class can continue the
    answer."""
    return (
        chat.stream
        and not prompt.tools.json
        and (
            "response_format" not in prompt.parameters.fields or prompt.parameters.known.response_format.type == "text"
        )
        # A beginning of the client's own would have to be joined to what the model wrote.
        and prompt.messages.parsed[-1].role != "assistant"
        and prompt.messages.size_bytes <= LARGEST_PROMPT_BYTES
    )


def new_transcript() -> Transcript:
    return Transcript(LARGEST_ANSWER_BYTES)


# What a call used, what its provider plausibly reported, and which of them counts.
_CallUsage = tuple[Usage, ProviderUsage | None, "UsageSource.ValueType"]


@dataclass(slots=True, repr=False)
class Continuation:
    """Keeps what is needed of one chat to continue its answer."""

    chat: ChatOpen
    prompt: Prompt
    allowance: TokenAllowance
    relay: Relay
    open_upstream: OpenContinuation
    # The present call.
    upstream: Upstream
    # The output limit of the whole answer.
    max_tokens: int
    # Those that were cut.
    past_calls: list[ModelCall] = field(default_factory=list)
    count: int = 0
    # Of the present call, if it continues another.
    seam: Seam | None = None
    _output_tokens_before: int = 0
    # What the present call used, if it continues another and has finished the answer.
    _continued: "_CallUsage | None" = None

    async def open_next(self, cut: Upstream, error: ProviderError) -> Upstream | None:
        """Opens a call that continues an answer which was cut by an error; raises the error if that is not possible.
        Returns None if the answer was as long as it may be."""
        relay, transcript = self.relay, self.relay.transcript
        is_kept = transcript is not None and transcript.is_whole and relay.is_plain
        if transcript is None or not is_kept or self.count == MOST_CONTINUATIONS:
            raise error
        output_tokens = relay.output_tokens
        left_tokens = self.max_tokens - output_tokens
        if left_tokens < 1:
            await relay.cut_short()
            return None
        seam = Seam(relay, transcript.text)
        answer_tokens = output_tokens + TOKENS_PER_MESSAGE
        prompt = replace(self.prompt, answer_prefix=seam.prefix, tokens=self.prompt.tokens + answer_tokens)
        self.allowance.continue_answer(answer_tokens, output_tokens)
        try:
            upstream = await self.open_upstream(self._chat(left_tokens), prompt, seam, cut.model_state)
        except LegatoError as refusal:
            forget_origin(refusal)
            if refusal.reason is not Reason.CREDITS_EXHAUSTED:
                raise error from None
            await relay.cut_short()
            return None
        if upstream.model_state.target.continues is PrefixStyle.REPEATED_PREFIX:
            seam.expect_repetition()
        relay.begin_round(self.prompt.tokens, upstream.plan.max_tokens, upstream.plan.longest_tokens)
        self.count += 1
        self.past_calls.append(
            describe_call(
                cut.model_state.target,
                Usage(
                    prompt_tokens=cut.plan.prompt.tokens, completion_tokens=output_tokens - self._output_tokens_before
                ),
            )
        )
        self.upstream, self.seam, self._output_tokens_before = upstream, seam, output_tokens
        return upstream

    def read_end(self) -> AnswerEnd:
        """Returns how the answer to the present call ended. If it continues another, that concerns this call alone: it
        calibrates the model's counts, and costs."""
        end = self.relay.read_end()
        if end.finished is None or self._continued is None:
            return end
        usage, believed, source = self._continued
        finished = Finished(finish_reason=end.finished.finish_reason, usage_source=source, usage=usage)
        return structs.replace(end, finished=finished, believed=believed, comparable_tokens=None)

    def describe_calls(
        self, counted: Usage, believed: ProviderUsage | None, reported: ProviderUsage | None
    ) -> Iterable[ModelCall]:
        """Describes all calls, when the answer finishes."""
        seam, target = self.seam, self.upstream.model_state.target
        if seam is None:
            return [describe_call(target, counted, believed, reported)]
        self._continued = usage, believed, _ = self._usage_of(seam)
        return [*self.past_calls, describe_call(target, usage, believed, seam.usage)]

    def _usage_of(self, seam: Seam) -> "_CallUsage":
        upstream, output_tokens = self.upstream, self.relay.output_tokens - self._output_tokens_before
        believed = None if seam.usage is None else upstream.usage_check.believed(seam.usage, output_tokens)
        if believed is None or not believed.prompt_tokens or not believed.completion_tokens:
            usage = Usage(prompt_tokens=upstream.plan.prompt.tokens, completion_tokens=output_tokens)
            return usage, believed, USAGE_SOURCE_COUNTED
        return believed.charged(believed.prompt_tokens, believed.completion_tokens), believed, USAGE_SOURCE_PROVIDER

    def _chat(self, left_tokens: int) -> ChatOpen:
        chat = with_max_tokens(self.chat, left_tokens)
        # The edge knows that a provider has the prompt.
        chat.ClearField("tells_acceptance")
        return chat


async def pass_on_call(upstream: Upstream, relay: Relay, continuation: Continuation | None = None) -> None:
    """Relays the answer to one call."""
    seam = None if continuation is None else continuation.seam
    try:
        if await relay.pass_on(upstream.first if seam is None else seam.join(upstream.first)):
            # The relay takes ordinary pieces as they are read; only the others get here.
            async for piece in upstream.rest:
                # Placed here rather than after sending: the previous piece has mostly left the process by now.
                failpoints.hit("router.passed_on")
                if not await relay.pass_on(piece if seam is None else seam.join(piece)):
                    break
    finally:
        # Closes the provider's connection, however the chat ends.
        await upstream.rest.aclose()
