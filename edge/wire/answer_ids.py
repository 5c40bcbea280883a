"""The prefixes of the ids of answers, each before the id of its request."""

from typing import Final

COMPLETION_PREFIX: Final = "chatcmpl-"
MESSAGE_PREFIX: Final = "msg_"
RESPONSE_PREFIX: Final = "resp_"
