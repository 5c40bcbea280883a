"""Content for servers that take strings alone: DeepSeek refuses a list of parts, Ollama makes a message of each.

The client may send either form, and many frameworks send lists wherever they can.
"""

import msgspec
from msgspec import Raw

from services.router.prompts.json_text import is_list
from services.router.providers.translation.conversion import ConversionYielder, read_list

_fields = msgspec.json.Decoder(dict[str, Raw])
_text = msgspec.json.Decoder(str)


class _Part(msgspec.Struct, gc=False):
    text: Raw = Raw(b'""')


_part = msgspec.json.Decoder(_Part)


async def write_as_strings(messages_json: bytes) -> bytes:
    """The same messages, and the very same bytes where no content is a list; all other fields stay as they are."""
    yielder = ConversionYielder()
    were_rewritten = False
    try:
        messages = await read_list(messages_json, yielder)
        for index, raw_message in enumerate(messages):
            message = _fields.decode(raw_message)
            if is_list(message.get("content", Raw())):
                message["content"] = await _joined(message["content"], yielder)
                messages[index] = Raw(msgspec.json.encode(message))
                were_rewritten = True
            if yielder.is_due_after(raw_message):
                await yielder.pause()
    except (msgspec.DecodeError, RecursionError):
        # What has another form than messages have is for the provider to judge.
        return messages_json
    return b"[" + b",".join(messages) + b"]" if were_rewritten else messages_json


async def _joined(content: Raw, yielder: ConversionYielder) -> Raw:
    parts = await read_list(content, yielder)
    if len(parts) == 1:
        return _part.decode(parts[0]).text
    texts = []
    for raw_part in parts:
        texts.append(_text.decode(_part.decode(raw_part).text))
        if yielder.is_due_after(raw_part):
            await yielder.pause()
    return Raw(msgspec.json.encode("".join(texts)))
