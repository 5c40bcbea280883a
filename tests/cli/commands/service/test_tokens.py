import json
from pathlib import Path

import pytest

from legato_protos.router.v1.router_pb2 import CountTokensResponse
from tests.cli.played import play

CHAT = {
    "model": "mezzo",
    "messages": [{"role": "user", "content": "Is it raining?"}],
    "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
    "temperature": 0.5,
}
COUNTED = ("router", "RouterService.CountTokens", CountTokensResponse(tokens=1234))


def test_router_counts_the_chat_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(CHAT))
    far_end = play(COUNTED)
    assert far_end.run("tokens", str(file)).stdout == "1234 tokens\n"
    chat = far_end.requests[0].chat
    assert (chat.model, json.loads(chat.messages_json), json.loads(chat.tools_json)) == (
        "mezzo",
        CHAT["messages"],
        CHAT["tools"],
    )
    assert json.loads(play(COUNTED).run("tokens", str(file), "--json").stdout) == {"prompt_tokens": 1234}


@pytest.mark.parametrize(
    ("body", "message"),
    [("{", "not valid JSON"), ('{"messages": []}', "messages"), ('{"messages": [{"role": "user"}]}', "content")],
)
def test_chat_that_would_be_refused_is_refused_here(tmp_path: Path, body: str, message: str) -> None:
    file = tmp_path / "chat.json"
    file.write_text(body)
    result = play().run("tokens", str(file))
    assert result.exit_code == 1
    assert message in result.stderr
