"""The tests' questions and their answers."""

from typing import Any

from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "How is the weather in Paris?"}]

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}

CHAT: dict[str, Any] = {"model": "mezzo", "messages": QUESTION, "stream": True}
# An answer of this class is streamed to us even when it is wanted whole.
WHOLE_CHAT: dict[str, Any] = {"model": "fortissimo", "messages": QUESTION}

# Three tokens, by our count too.
RAIN = ["It", " rains", "."]
USAGE = {"prompt_tokens": 11, "completion_tokens": 7}
