"""Messages parsed at once, for tests that have no event loop or count its turns."""

import sys

from services.router.schema.messages import Messages, read_messages


def parsed(messages_json: bytes) -> Messages:
    reading = read_messages(messages_json, slice_bytes=sys.maxsize)
    try:
        reading.send(None)
    except StopIteration as done:
        messages: Messages = done.value
        return messages
    raise AssertionError("it yielded")
