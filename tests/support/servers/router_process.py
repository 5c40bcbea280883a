"""A router in a process of its own, which keeps notes and documents. The kernel may limit its memory: beyond that, an
allocation fails."""

import asyncio
import os
import re
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc.aio

from legato_protos.router.v1.grounding_pb2 import AddAttachmentRequest, AddAttachmentResponse, AddNoteRequest
from legato_protos.router.v1.grounding_pb2_grpc import GroundingAdminServiceStub
from services.chassis.rpc.channel import open_channel
from tests.support.servers.child import start_child

if TYPE_CHECKING:
    from legato_protos.router.v1.grounding_pb2_grpc import GroundingAdminServiceAsyncStub

START_TIMEOUT_S: Final = 120.0

Call = grpc.aio.StreamStreamCall[AddAttachmentRequest, AddAttachmentResponse]


class RouterProcess:
    def __init__(self, process_id: int, stub: "GroundingAdminServiceAsyncStub") -> None:
        self._process_id = process_id
        self.stub = stub

    @property
    def peak_bytes(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self._process_id}/status").read_text())
        return int(found[1]) * 1024 if found else 0

    def kill(self) -> None:
        os.kill(self._process_id, signal.SIGKILL)

    async def add(self, account_id: str, document: bytes) -> AddAttachmentResponse:
        *_, last = [response async for response in self.adding(account_id, document)]
        return last

    def adding(self, account_id: str, document: bytes) -> "AsyncIterator[AddAttachmentResponse]":
        """Yields how far the document is."""
        head = AddAttachmentRequest(account_id=account_id, name="a", size_bytes=len(document), piece=document)
        return aiter(self.stub.AddAttachment(iter([head])))

    async def note(self, account_id: str) -> None:
        await self.stub.AddNote(AddNoteRequest(account_id=account_id, text="I live in Ottawa."))


@asynccontextmanager
async def running_router_process(folder: Path, memory_bytes: int | None = None) -> AsyncIterator[RouterProcess]:
    listen = f"unix:{folder / 'router.sock'}"
    environ = {
        "LEGATO_DATA": str(folder),
        "LEGATO_ROUTER_LISTEN": listen,
        "LEGATO_MEMORY": "true",
        "LEGATO_ATTACHMENTS": "true",
        "LEGATO_GROUNDING_KEY": f"1:{'ab' * 32}",
    }
    process = start_child(
        [sys.executable, "-m", "services.router"],
        folder / "log",
        last_signal=signal.SIGKILL,
        environ=os.environ | environ,
    )
    try:
        if memory_bytes is not None:
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
        async with open_channel(listen) as channel:
            async with asyncio.timeout(START_TIMEOUT_S):
                await channel.channel_ready()
            yield RouterProcess(process.pid, GroundingAdminServiceStub(channel))
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
