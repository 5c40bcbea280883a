"""An agent on OpenAI's Agents SDK, streamed."""

import asyncio
import subprocess
import sys

from agents import Agent, Runner, function_tool, set_tracing_disabled


@function_tool
def run_shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


async def main(task: str) -> None:
    # Traces are sent to OpenAI, with the key.
    set_tracing_disabled(True)
    agent = Agent(name="Secretary", instructions="Use the shell.", tools=[run_shell], model="forte")
    result = Runner.run_streamed(agent, task)
    async for _ in result.stream_events():
        pass
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
