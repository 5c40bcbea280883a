"""The chat service from TypeScript: stubs are generated, type-checked together with a program, and used by it."""

import shutil
import subprocess
from pathlib import Path

from legato_protos.chat.v1.chat_pb2 import AnswerMessage, CompleteResponse, Delta, StreamResponse, Usage
from tests.support.servers.chat_service import ScriptedChatService
from tests.support.toolchains.node import NODE, node_environ
from tests.support.toolchains.stubs import ROOT, typescript_stubs
from tests.support.waiting import WAIT_TIMEOUT_S

SOURCES = Path(__file__).parent / "typescript"


def test_a_program_type_checks_and_chats(tmp_path: Path, socket_folder: Path) -> None:
    programs = typescript_stubs(tmp_path)
    for name in ("chat.ts", "tsconfig.json"):
        shutil.copy(SOURCES / name, tmp_path)
    shutil.copy(ROOT / "requirements" / "typescript" / "package.json", tmp_path)
    checked = subprocess.run(
        [programs / "tsc"], cwd=tmp_path, env=node_environ(), check=False, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout

    service = ScriptedChatService()
    service.completion = CompleteResponse(message=AnswerMessage(text="Hello."), usage=Usage(cost_nanos=2570))
    service.pieces = [StreamResponse(deltas=[Delta(text="Hel"), Delta(text="lo.")])]
    server, _ = service.start(f"unix:{socket_folder}/chat.sock")
    command = [str(NODE), "chat.js", f"unix:{socket_folder}/chat.sock"]
    ran = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S)
    server.stop(None).wait()
    assert (ran.stdout, ran.returncode) == ("Hello. 2570n\nHel\nlo.\n", 0), ran.stderr
    for received in service.received:
        assert received.metadata["authorization"] == "Bearer sk"
        assert received.request.chat.messages[0].text == "Say hello."
        assert received.request.chat.tools[0].function.parameters_json == '{"type":"object"}'
