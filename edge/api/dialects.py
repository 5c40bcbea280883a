"""The dialects in which a chat can be asked for over HTTP, by their paths. Each is one chat to the rest of the edge."""

from collections.abc import Mapping
from typing import Final

from edge.api.completions import CompletionChat
from edge.http.http_chat import HttpChat
from edge.messages.errors import MESSAGES_PATH
from edge.messages.incoming import MessagesChat
from edge.responses.incoming import ResponseChat

COMPLETIONS_PATH: Final = "/v1/chat/completions"
RESPONSES_PATH: Final = "/v1/responses"

CHATS: Final[Mapping[str, type[HttpChat]]] = {
    COMPLETIONS_PATH: CompletionChat,
    MESSAGES_PATH: MessagesChat,
    RESPONSES_PATH: ResponseChat,
}
