"""A chat as its caller opened it, with its prompt until that is composed."""

from functools import partial

from legato_protos.router.v1.router_pb2 import ChatOpen, ChatRequest
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.fair_budget import FairBudget
from services.chassis.sentence import Sentence
from services.router.prompts.prompt import Character, Prompt, compose_prompt
from services.router.reasoning.sealed_ids import ReasoningSeals
from services.router.reasoning.set_aside import set_aside


def read_opening(request: ChatRequest) -> ChatOpen:
    if request.WhichOneof("kind") != "open":
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("chat_not_opened"))
    if not request.open.HasField("grant"):
        # It could not be charged.
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("grant_missing"))
    return request.open


class OpenedChat:
    """Holds the caller's bytes, and the memory that they are charged for."""

    __slots__ = ("_size_bytes", "chat", "memory", "messages_json", "tools_json")

    def __init__(self, chat: ChatOpen, prompt_memory: FairBudget) -> None:
        """Raises SATURATED if there is no memory for the prompt."""
        self.messages_json, self.tools_json = chat.messages_json, chat.tools_json
        self._size_bytes = len(self.messages_json) + len(self.tools_json) + len(chat.parameters_json)
        self.memory = prompt_memory.hold(chat.account_id, self._size_bytes)
        if self.memory.charged:
            # A message keeps its memory until all of it is gone, so a large one is replaced by what else was in it.
            chat.ClearField("messages_json")
            chat.ClearField("tools_json")
            kept = ChatOpen()
            kept.CopyFrom(chat)
            chat = kept
        self.chat = chat

    @property
    def _most_turns(self) -> int | None:
        return self.chat.kept_thinking_turns if self.chat.HasField("kept_thinking_turns") else None

    async def compose(self, character: Character, seals: ReasoningSeals) -> Prompt:
        """Returns the prompt, which alone refers to the caller's bytes from here on."""
        messages_json, tools_json = self.messages_json, self.tools_json
        self.messages_json = self.tools_json = b""
        prompt = await compose_prompt(
            messages_json,
            tools_json,
            character,
            tool_choice_json=self.chat.tool_choice_json,
            parameters_json=self.chat.parameters_json,
            set_aside=partial(set_aside, seals=seals, account_id=self.chat.account_id, most_turns=self._most_turns),
        )
        if self.memory.charged:
            self.memory.grow_to(self._size_bytes + prompt.messages.object_bytes)
        return prompt
