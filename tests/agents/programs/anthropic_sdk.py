"""An agent on Anthropic's library: a loop that runs the calls of each answer until there are none."""

import subprocess
import sys
from typing import Any

import anthropic

RUN_SHELL: Any = {
    "name": "run_shell",
    "description": "Runs a command",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def run(command: str) -> str:
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


def main(task: str) -> None:
    client = anthropic.Anthropic()
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        with client.messages.stream(model="forte", max_tokens=1000, messages=messages, tools=[RUN_SHELL]) as stream:
            answer = stream.get_final_message()
        messages.append({"role": "assistant", "content": answer.content})
        calls: Any = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            print("".join(block.text for block in answer.content if block.type == "text"))
            return
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": run(call.input["command"])} for call in calls
        ]
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    main(sys.argv[1])
