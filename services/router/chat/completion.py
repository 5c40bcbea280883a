"""Serves chats: accepts each, has it run, and counts those that run."""

import asyncio

from legato_protos.router.v1.grounding_pb2 import PreviewGroundingResponse, PromptTokens
from legato_protos.router.v1.router_pb2 import ChatOpen
from services.chassis.errors import LegatoError
from services.chassis.load.fair_budget import FairBudget
from services.chassis.load.prompt_memory import open_prompt_memory
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import STEP_BOUNDS_S, Histogram
from services.chassis.timing.deadlines import Clock
from services.router.answers.grants import ChatConversation
from services.router.calls.fallback import Targets
from services.router.chat.class_choice import class_of
from services.router.chat.opened_chat import OpenedChat, read_opening
from services.router.chat.running_chat import ChatParts, RunningChat
from services.router.grounding.grounding import Grounding
from services.router.models.states import ModelStates
from services.router.prompts import tokens
from services.router.prompts.calibration import CountedPrompt
from services.router.prompts.prompt import TOKENS_PER_MESSAGE
from services.router.providers.base import ProviderError


class Completions:
    def __init__(
        self,
        model_states: ModelStates,
        targets: Targets,
        clock: Clock,
        log: Log,
        grounding: Grounding | None = None,
        prompt_memory: FairBudget | None = None,
    ) -> None:
        """`grounding` is None if it is not configured."""
        self.model_states = model_states
        self._clock = clock
        self._grounding = grounding
        self._running = 0
        self._prompt_memory = prompt_memory or open_prompt_memory()
        # Time from a chat's arrival until a model is called, for metrics.
        self.prepare_times_s = Histogram(STEP_BOUNDS_S)
        # Answers that were cut and could be continued, by outcome.
        self.continuations = {"continued": 0, "failed": 0}
        self._parts = ChatParts(model_states, targets, clock, log, grounding, self.continuations)

    async def serve(self, conversation: ChatConversation) -> None:
        opened = OpenedChat(read_opening(await conversation.receive()), self._prompt_memory)
        began_s = self._clock.elapsed_s()
        chat = RunningChat(self._parts, opened, conversation, began_s)
        self._running += 1
        try:
            await chat.converse()
        except asyncio.CancelledError:
            chat.leave()
            raise
        except ProviderError as error:
            raise chat.break_off(error) from None
        except LegatoError as error:
            chat.refuse(error.reason)
            raise
        finally:
            self._running -= 1
            chat.close()
            if chat.attempts.first_asked_at_s is not None:
                self.prepare_times_s.observe(chat.attempts.first_asked_at_s - began_s)

    async def preview(self, chat: ChatOpen) -> PreviewGroundingResponse:
        """Returns what a model would be sent for a chat without tools; nothing is sent."""
        class_id = class_of(chat)
        character = self.model_states.routes.characters[class_id]
        opened = OpenedChat(chat, self._prompt_memory)
        with opened.memory:
            prompt = await opened.compose(character)
        targets = self.model_states.by_class[class_id].route.targets
        character_tokens = tokens.count_once(character.text) + TOKENS_PER_MESSAGE
        response = PreviewGroundingResponse(
            class_id=class_id,
            # The smallest window of the class.
            context_tokens=min(target.context_tokens for target in targets),
            tokens=PromptTokens(character=character_tokens, question=prompt.tokens - character_tokens),
        )
        if self._grounding is not None:
            response.MergeFrom(await self._grounding.preview(chat, prompt, targets))
        return response

    async def count_tokens(self, chat: ChatOpen) -> int:
        """Returns the tokens of a prompt as the first model of its class usually counts; nothing is sent."""
        class_id = class_of(chat)
        opened = OpenedChat(chat, self._prompt_memory)
        with opened.memory:
            prompt = await opened.compose(self.model_states.routes.characters[class_id])
        counted = CountedPrompt(prompt.tokens, bool(prompt.tools.json), chat.account_id)
        ratios = self.model_states.by_class[class_id].all[0].calibration.ratios(counted)
        return prompt.tokens if ratios is None else round(ratios.middle * prompt.tokens)

    async def drain(self) -> None:
        """Waits until no chat is running."""
        while self._running:
            await asyncio.sleep(0.02)
