"""The agents and libraries that are tried against this service: how each is told of it, and what its user then sees.

Pages and `legato up` show these settings, and `docs/agents.md` is written from them. `make agents` tests them with the
versions that `requirements/agents/` pins.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

# What settings have in place of the address, with its path and without it, and of the key.
BASE_URL: Final = "@BASE_URL@"
ORIGIN: Final = "@ORIGIN@"
API_KEY: Final = "@API_KEY@"
# What a command has in place of what the agent shall do.
TASK: Final = "@TASK@"

ChatApi = Literal["chat", "messages", "responses"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that a user makes once. Files are in the user's folder; `command` is run before the first use."""

    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()

    def filled(self, base_url: str, api_key: str) -> "Settings":
        """Returns the settings of a service and a key. The address ends with `/v1`."""

        def fill(text: str) -> str:
            return (
                text.replace(BASE_URL, base_url).replace(ORIGIN, base_url.removesuffix("/v1")).replace(API_KEY, api_key)
            )

        return Settings(
            {name: fill(value) for name, value in self.environment.items()},
            {path: fill(text) for path, text in self.files.items()},
            tuple(map(fill, self.command)),
        )

    @property
    def exports(self) -> str:
        """The environment as lines for a shell."""
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in self.environment.items())


@dataclass(frozen=True, slots=True)
class Agent:
    name: str
    title: str
    # Its packages, in a registry of JavaScript's or of Python's.
    package: str
    api: ChatApi
    settings: Settings
    # How it is run on one task without being asked; of a library, a program in `tests/agents/programs/`.
    command: Sequence[str]
    # What its user reads, in part, if the key is not valid, and if the credit is used up.
    key_refused: str
    no_credit: str
    # What it does at 429: it waits and goes on, or ends with these words.
    rate_limited: str = ""
    # What its user reads if the model's window is full. Without these words it makes the conversation shorter, and goes
    # on; with a command for the user's next message, it does so then.
    full_window: str = ""
    next_message: Sequence[str] = ()
    language: Literal["javascript", "python"] = "javascript"
    # What else its user should know.
    note: str = ""


_CODEX_CONFIG: Final = f"""\
model = "forte"
model_provider = "legato"

[model_providers.legato]
name = "Legato"
base_url = "{BASE_URL}"
env_key = "LEGATO_API_KEY"
wire_api = "responses"
"""
_OPENCODE_CONFIG: Final = f"""\
{{
  "model": "legato/forte",
  "small_model": "legato/mezzo",
  "provider": {{
    "legato": {{
      "npm": "@ai-sdk/openai-compatible",
      "name": "Legato",
      "options": {{"baseURL": "{BASE_URL}", "apiKey": "{{env:LEGATO_API_KEY}}"}},
      "models": {{"mezzo": {{}}, "forte": {{}}, "fortissimo": {{}}}}
    }}
  }}
}}
"""
_CONTINUE_CONFIG: Final = f"""\
name: Legato
version: 1.0.0
schema: v1
models:
  - name: forte
    provider: openai
    model: forte
    apiBase: {BASE_URL}
    apiKey: {API_KEY}
    roles: [chat]
    capabilities: [tool_use]
"""
_OPENAI: Final = Settings({"OPENAI_BASE_URL": BASE_URL, "OPENAI_API_KEY": API_KEY})

CLAUDE_CODE: Final = Agent(
    name="claude-code",
    title="Claude Code",
    package="@anthropic-ai/claude-code",
    api="messages",
    settings=Settings(
        {
            "ANTHROPIC_BASE_URL": ORIGIN,
            "ANTHROPIC_AUTH_TOKEN": API_KEY,
            "ANTHROPIC_MODEL": "fortissimo",
            "ANTHROPIC_DEFAULT_OPUS_MODEL": "fortissimo",
            "ANTHROPIC_DEFAULT_SONNET_MODEL": "forte",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "mezzo",
            "ENABLE_TOOL_SEARCH": "false",
        }
    ),
    command=("claude", "-p", TASK, "--allowedTools", "Bash"),
    key_refused="Failed to authenticate. API Error: 401 The API key is not valid.",
    no_credit="API Error: 402 The account's credit does not cover this request.",
    note="[More about it](messages.md#claude-code).",
)
CODEX: Final = Agent(
    name="codex",
    title="Codex",
    package="@openai/codex",
    api="responses",
    settings=Settings({"LEGATO_API_KEY": API_KEY}, {".codex/config.toml": _CODEX_CONFIG}),
    command=("codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", TASK),
    key_refused="unexpected status 401 Unauthorized: The API key is not valid.",
    no_credit="unexpected status 402 Payment Required: The account's credit does not cover this request.",
    full_window="Codex ran out of room in the model's context window.",
    next_message=(
        *("codex", "exec", "resume", "--last", "--skip-git-repo-check"),
        *("-c", 'sandbox_mode="danger-full-access"', "Go on."),
    ),
    note="It asks five times again before it says what is wrong. [More about it](responses.md#codex).",
)
# Those whose settings are shown with a new key.
SHOWN_AGENTS: Final = (CLAUDE_CODE, CODEX)
AGENTS: Final = (
    CLAUDE_CODE,
    CODEX,
    Agent(
        name="opencode",
        title="opencode",
        package="opencode-ai",
        api="chat",
        settings=Settings({"LEGATO_API_KEY": API_KEY}, {".config/opencode/opencode.json": _OPENCODE_CONFIG}),
        command=("opencode", "run", TASK),
        key_refused="The API key is not valid.",
        no_credit="The account's credit does not cover this request.",
    ),
    Agent(
        name="qwen-code",
        title="Qwen Code",
        package="@qwen-code/qwen-code",
        api="chat",
        settings=Settings({"OPENAI_BASE_URL": BASE_URL, "OPENAI_API_KEY": API_KEY, "OPENAI_MODEL": "forte"}),
        command=("qwen", "--auth-type", "openai", "--yolo", TASK),
        note="It is started as `qwen --auth-type openai`.",
        key_refused="[API Error: 401 The API key is not valid.]",
        no_credit="[API Error: 402 The account's credit does not cover this request.]",
    ),
    Agent(
        name="cline",
        title="Cline",
        package="cline",
        api="chat",
        settings=Settings(command=("cline", "auth", "openai-compatible", "-k", API_KEY, "-b", BASE_URL, "-m", "forte")),
        command=("cline", TASK),
        key_refused="The API key is not valid.",
        no_credit="The account's credit does not cover this request.",
    ),
    Agent(
        name="continue",
        title="Continue",
        package="@continuedev/cli",
        api="chat",
        settings=Settings(files={".continue/config.yaml": _CONTINUE_CONFIG}),
        command=("cn", "-p", TASK, "--auto"),
        key_refused="401 The API key is not valid.",
        no_credit="402 The account's credit does not cover this request.",
        full_window="Context length exceeded: Error: 400 The prompt, including tool definitions, is too long",
    ),
    Agent(
        name="openai-agents-python",
        title="OpenAI Agents SDK for Python",
        package="openai-agents",
        api="responses",
        settings=_OPENAI,
        command=("python", "openai_agents.py", TASK),
        note="`set_tracing_disabled(True)` keeps it from sending traces, with the key, to OpenAI.",
        language="python",
        key_refused="openai.AuthenticationError: Error code: 401 - The API key is not valid.",
        no_credit="openai.APIStatusError: Error code: 402 - The account's credit does not cover this request.",
        full_window="openai.APIError: The prompt, including tool definitions, is too long",
    ),
    Agent(
        name="openai-agents-node",
        title="OpenAI Agents SDK for Node",
        package="@openai/agents",
        api="responses",
        settings=_OPENAI,
        command=("node", "openai_agents.js", TASK),
        note="`setTracingDisabled(true)` keeps it from sending traces, with the key, to OpenAI.",
        key_refused="AuthenticationError: 401 The API key is not valid.",
        no_credit="APIError: 402 The account's credit does not cover this request.",
        full_window="APIError: The prompt, including tool definitions, is too long",
    ),
    Agent(
        name="anthropic-sdk",
        title="Anthropic SDK for Python",
        package="anthropic",
        api="messages",
        settings=Settings({"ANTHROPIC_BASE_URL": ORIGIN, "ANTHROPIC_API_KEY": API_KEY}),
        command=("python", "anthropic_sdk.py", TASK),
        language="python",
        key_refused="anthropic.AuthenticationError: Error code: 401",
        no_credit="anthropic.APIStatusError: Error code: 402",
        full_window="anthropic.BadRequestError: Error code: 400",
    ),
    Agent(
        name="ai-sdk-openai",
        title="AI SDK with `openai()`",
        package="@ai-sdk/openai",
        api="responses",
        settings=_OPENAI,
        command=("node", "ai_sdk.js", "openai", TASK),
        note="It must be told that [nothing is stored](responses.md#sdks).",
        key_refused="AI_APICallError: The API key is not valid.",
        no_credit="AI_APICallError: The account's credit does not cover this request.",
        full_window="AI_APICallError: The prompt, including tool definitions, is too long",
    ),
    Agent(
        name="ai-sdk-anthropic",
        title="AI SDK with `anthropic()`",
        package="@ai-sdk/anthropic",
        api="messages",
        settings=Settings({"ANTHROPIC_BASE_URL": BASE_URL, "ANTHROPIC_API_KEY": API_KEY}),
        command=("node", "ai_sdk.js", "anthropic", TASK),
        key_refused="AI_APICallError: The API key is not valid.",
        no_credit="AI_APICallError: The account's credit does not cover this request.",
        full_window="AI_APICallError: prompt is too long",
    ),
    Agent(
        name="ai-sdk-openai-chat",
        title="AI SDK with `openai.chat()`",
        package="@ai-sdk/openai",
        api="chat",
        settings=_OPENAI,
        command=("node", "ai_sdk.js", "openai-chat", TASK),
        key_refused="AI_APICallError: The API key is not valid.",
        no_credit="AI_APICallError: The account's credit does not cover this request.",
        full_window="AI_APICallError: The prompt, including tool definitions, is too long",
    ),
    Agent(
        name="langchain",
        title="LangChain",
        package="langchain-openai",
        api="chat",
        settings=_OPENAI,
        command=("python", "langchain_agent.py", TASK),
        language="python",
        key_refused="openai.AuthenticationError: Error code: 401 - The API key is not valid.",
        no_credit="openai.APIStatusError: Error code: 402 - The account's credit does not cover this request.",
        full_window="The prompt, including tool definitions, is too long",
    ),
    Agent(
        name="pydantic-ai",
        title="Pydantic AI",
        package="pydantic-ai-slim",
        api="chat",
        settings=_OPENAI,
        command=("python", "pydantic_ai_agent.py", TASK),
        language="python",
        key_refused="The API key is not valid.",
        no_credit="The account's credit does not cover this request.",
        full_window="The prompt, including tool definitions, is too long",
    ),
)
