"""Programs for a request, with the real base address and, if there is one, the key."""

import json
import shlex
from dataclasses import dataclass
from typing import Final

from console.display.language import N_, _

PLACEHOLDER: Final = "YOUR_KEY"
_QUESTION: Final = N_("Say hello in one sentence.")
# Where a script puts the request that a page has, as the language writes it.
REQUEST_MARK: Final = "@REQUEST@"


@dataclass(frozen=True, slots=True)
class Snippet:
    language: str
    title: str
    # What to do before; empty: nothing.
    install: str
    text: str
    # The same with a mark in place of the request; empty: it cannot be replaced.
    template: str = ""


def snippets(base_url: str, api_key: str = PLACEHOLDER) -> list[Snippet]:
    python = (
        "answer = client.chat.completions.create(\n"
        '    model="auto",\n'
        f'    messages=[{{"role": "user", "content": {json.dumps(_(_QUESTION))}}}],\n'
        ")\n"
        "print(answer.choices[0].message.content)"
    )
    node = (
        "const answer = await client.chat.completions.create({\n"
        '  model: "auto",\n'
        f'  messages: [{{ role: "user", content: {json.dumps(_(_QUESTION))} }}],\n'
        "});\n"
        "console.log(answer.choices[0].message.content);"
    )
    return [
        Snippet("curl", "curl", "", _curl(base_url, api_key, shlex.quote(json.dumps(_first_request())))),
        Snippet("python", "Python", "pip install openai", _python_client(base_url, api_key) + python),
        Snippet("node", "Node", "npm install openai", _node_client(base_url, api_key) + node),
    ]


def conversation_snippets(base_url: str) -> list[Snippet]:
    """Programs that send any request; until there is one, the first."""
    request = json.dumps(_first_request(), indent=2)
    curl = _curl(base_url, PLACEHOLDER, REQUEST_MARK)
    python = _python_client(base_url, PLACEHOLDER) + (
        f"request = {REQUEST_MARK}\n"
        "answer = client.chat.completions.create(**request)\n"
        "print(answer.choices[0].message)"
    )
    node = _node_client(base_url, PLACEHOLDER) + (
        f"const request = {REQUEST_MARK};\n"
        "const answer = await client.chat.completions.create(request);\n"
        "console.log(answer.choices[0].message);"
    )
    return [
        Snippet("curl", "curl", "", curl.replace(REQUEST_MARK, shlex.quote(request)), curl),
        Snippet("python", "Python", "pip install openai", python.replace(REQUEST_MARK, request), python),
        Snippet("node", "Node", "npm install openai", node.replace(REQUEST_MARK, request), node),
    ]


def _first_request() -> dict[str, object]:
    return {"model": "auto", "messages": [{"role": "user", "content": _(_QUESTION)}]}


def _curl(base_url: str, api_key: str, quoted_body: str) -> str:
    return (
        f"curl -sS {shlex.quote(f'{base_url}/chat/completions')} \\\n"
        f"  -H {shlex.quote(f'Authorization: Bearer {api_key}')} \\\n"
        f"  -H 'Content-Type: application/json' \\\n"
        f"  -d {quoted_body}"
    )


def _python_client(base_url: str, api_key: str) -> str:
    options = f"    base_url={json.dumps(base_url)},\n    api_key={json.dumps(api_key)},\n"
    return f"from openai import OpenAI\n\nclient = OpenAI(\n{options})\n"


def _node_client(base_url: str, api_key: str) -> str:
    options = f"  baseURL: {json.dumps(base_url)},\n  apiKey: {json.dumps(api_key)},\n"
    return f'import OpenAI from "openai";\n\nconst client = new OpenAI({{\n{options}}});\n'
