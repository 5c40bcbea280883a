from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.chat_service import ScriptedChatService


@pytest.fixture
def address(socket_folder: Path) -> str:
    return f"unix:{socket_folder}/chat.sock"


@pytest.fixture
def service(address: str) -> Iterator[ScriptedChatService]:
    service = ScriptedChatService()
    server, _ = service.start(address)
    yield service
    service.may_end.set()
    server.stop(None).wait()
