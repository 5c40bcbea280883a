"""An agent on Pydantic AI, streamed."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterable

from pydantic_ai import Agent, RunContext

agent = Agent("openai-chat:forte", instructions="Use the shell.")


@agent.tool_plain
def run_shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


async def read(_: RunContext[None], events: AsyncIterable[object]) -> None:
    """Has the model's answers streamed."""
    async for _event in events:
        pass


async def main(task: str) -> None:
    print((await agent.run(task, event_stream_handler=read)).output)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
