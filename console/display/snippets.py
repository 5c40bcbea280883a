"""Programs for a request, with the real base address and, if there is one, the key."""

import json
import shlex
from dataclasses import dataclass
from typing import Final

PLACEHOLDER: Final = "YOUR_KEY"
QUESTION: Final = "Say hello in one sentence."
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
    return [
        Snippet("curl", "curl", "", _curl(base_url, api_key)),
        Snippet("python", "Python", "pip install openai", _python(base_url, api_key)),
        Snippet("node", "Node", "npm install openai", _node(base_url, api_key)),
    ]


def conversation_snippets(base_url: str) -> list[Snippet]:
    """Programs that send any request; until there is one, the first."""
    request = json.dumps({"model": "auto", "messages": [{"role": "user", "content": QUESTION}]}, indent=2)
    first = {"curl": shlex.quote(request), "python": request, "node": request}
    templates = {
        "curl": _curl_of(base_url, PLACEHOLDER, REQUEST_MARK),
        "python": (
            "from openai import OpenAI\n\n"
            f"client = OpenAI(\n    base_url={json.dumps(base_url)},\n    api_key={json.dumps(PLACEHOLDER)},\n)\n"
            f"request = {REQUEST_MARK}\n"
            "answer = client.chat.completions.create(**request)\n"
            "print(answer.choices[0].message)"
        ),
        "node": (
            'import OpenAI from "openai";\n\n'
            f"const client = new OpenAI({{\n  baseURL: {json.dumps(base_url)},\n"
            f"  apiKey: {json.dumps(PLACEHOLDER)},\n}});\n"
            f"const request = {REQUEST_MARK};\n"
            "const answer = await client.chat.completions.create(request);\n"
            "console.log(answer.choices[0].message);"
        ),
    }
    return [
        Snippet(
            made.language,
            "JavaScript" if made.language == "node" else made.title,
            made.install,
            templates[made.language].replace(REQUEST_MARK, first[made.language]),
            templates[made.language],
        )
        for made in snippets(base_url)
    ]


def _curl(base_url: str, api_key: str) -> str:
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": QUESTION}]})
    return _curl_of(base_url, api_key, shlex.quote(body))


def _curl_of(base_url: str, api_key: str, quoted_body: str) -> str:
    return (
        f"curl -sS {shlex.quote(f'{base_url}/chat/completions')} \\\n"
        f"  -H {shlex.quote(f'Authorization: Bearer {api_key}')} \\\n"
        f"  -H 'Content-Type: application/json' \\\n"
        f"  -d {quoted_body}"
    )


def _python(base_url: str, api_key: str) -> str:
    return (
        "from openai import OpenAI\n\n"
        f"client = OpenAI(\n    base_url={json.dumps(base_url)},\n    api_key={json.dumps(api_key)},\n)\n"
        "answer = client.chat.completions.create(\n"
        '    model="auto",\n'
        f'    messages=[{{"role": "user", "content": {json.dumps(QUESTION)}}}],\n'
        ")\n"
        "print(answer.choices[0].message.content)"
    )


def _node(base_url: str, api_key: str) -> str:
    return (
        'import OpenAI from "openai";\n\n'
        f"const client = new OpenAI({{\n  baseURL: {json.dumps(base_url)},\n  apiKey: {json.dumps(api_key)},\n}});\n"
        "const answer = await client.chat.completions.create({\n"
        '  model: "auto",\n'
        f'  messages: [{{ role: "user", content: {json.dumps(QUESTION)} }}],\n'
        "});\n"
        "console.log(answer.choices[0].message.content);"
    )
