"""Calls Legato over gRPC: one answer, a stream with a tool, and how calls end early or are refused.

LEGATO_ADDRESS=unix:.legato/run/chat.sock LEGATO_API_KEY=sk-legato-... python examples/chat_sync.py

On TCP, LEGATO_TLS_CA, LEGATO_TLS_CERT and LEGATO_TLS_KEY name the PEM files of the authority and of this program.
"""

import json
import os

from legato_protos.client import (
    AuthenticationError,
    Certificates,
    DeadlineError,
    LegatoClient,
    OutOfCreditError,
    assistant,
    function,
    tool_result,
    user,
)

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = function("get_weather", "The present weather of a city", CITY)


def connect(api_key: str) -> LegatoClient:
    address = os.environ["LEGATO_ADDRESS"]
    if address.startswith("unix:"):
        return LegatoClient(address, api_key=api_key)
    files = Certificates(*(os.environ[f"LEGATO_TLS_{name}"] for name in ("CA", "CERT", "KEY")))
    return LegatoClient(address, api_key=api_key, certificates=files)


def answer(legato: LegatoClient) -> None:
    response = legato.complete("Say hello.", model="mezzo")
    print(f"answer: {response.message.text} ({response.usage.cost_nanos} nano-dollars)")


def stream_with_tool(legato: LegatoClient) -> None:
    messages = [user("How is the weather in Paris?")]
    asked = legato.stream(messages, model="mezzo", tools=[WEATHER]).response().message
    messages.append(assistant(asked))
    for call in asked.tool_calls:
        city = json.loads(call.arguments)["city"]
        messages.append(tool_result(call, f"Rain in {city}, 11 °C"))
    print(f"tool: {asked.tool_calls[0].name}: ", end="")
    for delta in legato.stream(messages, model="mezzo", tools=[WEATHER]):
        print(delta.text, end="", flush=True)
    print()


def cancel(legato: LegatoClient) -> None:
    # The end of the block cancels the call. What was delivered until then is charged.
    with legato.stream("Tell me a long story.", model="mezzo") as story:
        next(story)
    print("cancel: cancelled")


def deadline(legato: LegatoClient) -> None:
    try:
        legato.complete("Think for a long time.", model="mezzo", timeout_s=0.5)
    except DeadlineError:
        print("deadline: too late")


def out_of_credit(legato: LegatoClient) -> None:
    try:
        legato.complete("Say hello.", model="mezzo")
    except OutOfCreditError as error:
        print(f"out of credit: {error.reason}")


def revoked_key(legato: LegatoClient) -> None:
    try:
        legato.complete("Say hello.", model="mezzo")
    except AuthenticationError as error:
        print(f"revoked key: {error.reason}")


def main() -> None:
    with connect(os.environ["LEGATO_API_KEY"]) as legato:
        answer(legato)
        stream_with_tool(legato)
        cancel(legato)
        deadline(legato)
    with connect(os.environ["LEGATO_API_KEY_WITHOUT_CREDIT"]) as legato:
        out_of_credit(legato)
    with connect(os.environ["LEGATO_REVOKED_API_KEY"]) as legato:
        revoked_key(legato)


if __name__ == "__main__":
    main()
