"""Calls Legato over gRPC with asyncio: one answer, a stream with a tool, and how calls end early or are refused.

LEGATO_ADDRESS=unix:.legato/run/chat.sock LEGATO_API_KEY=sk-legato-... python examples/chat_asyncio.py

On TCP, LEGATO_TLS_CA, LEGATO_TLS_CERT and LEGATO_TLS_KEY name the PEM files of the authority and of this program.
"""

import asyncio
import json
import os

from legato_protos.client import (
    AsyncLegatoClient,
    AuthenticationError,
    Certificates,
    DeadlineError,
    OutOfCreditError,
    assistant,
    function,
    tool_result,
    user,
)

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = function("get_weather", "The present weather of a city", CITY)


def connect(api_key: str) -> AsyncLegatoClient:
    address = os.environ["LEGATO_ADDRESS"]
    if address.startswith("unix:"):
        return AsyncLegatoClient(address, api_key=api_key)
    files = Certificates(*(os.environ[f"LEGATO_TLS_{name}"] for name in ("CA", "CERT", "KEY")))
    return AsyncLegatoClient(address, api_key=api_key, certificates=files)


async def answer(legato: AsyncLegatoClient) -> None:
    response = await legato.complete("Say hello.", model="mezzo")
    print(f"answer: {response.message.text} ({response.usage.cost_nanos} nano-dollars)")


async def stream_with_tool(legato: AsyncLegatoClient) -> None:
    messages = [user("How is the weather in Paris?")]
    asked = (await legato.stream(messages, model="mezzo", tools=[WEATHER]).response()).message
    messages.append(assistant(asked))
    for call in asked.tool_calls:
        city = json.loads(call.arguments)["city"]
        messages.append(tool_result(call, f"Rain in {city}, 11 °C"))
    print(f"tool: {asked.tool_calls[0].name}: ", end="")
    async for delta in legato.stream(messages, model="mezzo", tools=[WEATHER]):
        print(delta.text, end="", flush=True)
    print()


async def cancel(legato: AsyncLegatoClient) -> None:
    async def listen() -> None:
        async for _ in legato.stream("Tell me a long story.", model="mezzo"):
            begun.set()

    begun = asyncio.Event()
    listener = asyncio.create_task(listen())
    await begun.wait()
    # Cancelling the task cancels the call. What was delivered until then is charged.
    listener.cancel()
    try:
        await listener
    except asyncio.CancelledError:
        print("cancel: cancelled")


async def deadline(legato: AsyncLegatoClient) -> None:
    try:
        await legato.complete("Think for a long time.", model="mezzo", timeout_s=0.5)
    except DeadlineError:
        print("deadline: too late")


async def out_of_credit(legato: AsyncLegatoClient) -> None:
    try:
        await legato.complete("Say hello.", model="mezzo")
    except OutOfCreditError as error:
        print(f"out of credit: {error.reason}")


async def revoked_key(legato: AsyncLegatoClient) -> None:
    try:
        await legato.complete("Say hello.", model="mezzo")
    except AuthenticationError as error:
        print(f"revoked key: {error.reason}")


async def main() -> None:
    async with connect(os.environ["LEGATO_API_KEY"]) as legato:
        await answer(legato)
        await stream_with_tool(legato)
        await cancel(legato)
        await deadline(legato)
    async with connect(os.environ["LEGATO_API_KEY_WITHOUT_CREDIT"]) as legato:
        await out_of_credit(legato)
    async with connect(os.environ["LEGATO_REVOKED_API_KEY"]) as legato:
        await revoked_key(legato)


if __name__ == "__main__":
    asyncio.run(main())
