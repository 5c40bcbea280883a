"""An agent on LangChain, streamed."""

import subprocess
import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def run_shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


def main(task: str) -> None:
    agent = create_agent(ChatOpenAI(model="forte", streaming=True), [run_shell], system_prompt="Use the shell.")
    told = agent.invoke({"messages": [("user", task)]}, {"recursion_limit": 100})
    print(told["messages"][-1].text)


if __name__ == "__main__":
    main(sys.argv[1])
