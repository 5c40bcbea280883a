"""Content for servers that take strings alone: DeepSeek refuses a list of parts, Ollama makes a message of each.

The client may send either form, and many frameworks send lists wherever they can.
"""

import msgspec
from msgspec import Raw

from services.router.json_text import is_list

_messages = msgspec.json.Decoder(list[dict[str, Raw]])
_text = msgspec.json.Decoder(str)


class _Part(msgspec.Struct, gc=False):
    text: Raw = Raw(b'""')


_parts = msgspec.json.Decoder(list[_Part])


def write_as_strings(messages_json: bytes) -> bytes:
    """The same messages, and the very same bytes where no content is a list; all other fields stay as they are."""
    try:
        messages = _messages.decode(messages_json)
        in_parts = [message for message in messages if is_list(message.get("content", Raw()))]
        for message in in_parts:
            message["content"] = _joined(message["content"])
    except (msgspec.DecodeError, RecursionError):
        # What has another form than messages have is for the provider to judge.
        return messages_json
    return msgspec.json.encode(messages) if in_parts else messages_json


def _joined(content: Raw) -> Raw:
    texts = [part.text for part in _parts.decode(content)]
    if len(texts) == 1:
        return texts[0]
    return Raw(msgspec.json.encode("".join(map(_text.decode, texts))))
