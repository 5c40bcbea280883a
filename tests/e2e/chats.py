"""What the tests ask."""

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
