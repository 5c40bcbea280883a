"""A router that is killed while documents are added or removed: each is there as a whole, or not at all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import grpc

from legato_protos.router.v1 import grounding_pb2 as pb
from services.router.grounding.documents.attachments import PASSAGES_AT_ONCE
from tests.support.servers.router_process import RouterProcess, running_router_process

ACCOUNT: Final = "acct_1"
PASSAGES: Final = 10 * PASSAGES_AT_ONCE
KEPT: Final = b"The warranty lasts for five years."
# A word in common, so that half of it would be found.
BOOK: Final = "\n\n".join(f"Chapter {number} on the warranty. " + "word " * 200 for number in range(PASSAGES)).encode()
# Documents are received into files without a name: these are all that there are.
FILES: Final = {"router.db", "router.db-shm", "router.db-wal", "router.sock", "log"}


async def run_kills(folder: Path, after_passages: Sequence[int]) -> list[str]:
    """Kills a router each time so many passages of a document are stored, and returns what is wrong afterwards."""
    violations: list[str] = []
    for number, passages in enumerate(after_passages):
        async with running_router_process(folder) as router:
            if not number:
                await router.add(ACCOUNT, KEPT)
            violations += await _look(folder, router)
            await _kill_while_adding(router, passages)
    async with running_router_process(folder) as router:
        violations += await _look(folder, router)
        # The document can be sent again, and is then found.
        await router.add(ACCOUNT, BOOK)
        if len(await _found(router)) < 2:
            violations.append("a document is not found after it was sent again")
    return violations


async def _kill_while_adding(router: RouterProcess, passages: int) -> None:
    try:
        async for response in router.adding(ACCOUNT, BOOK):
            progress = response.progress
            if progress.stage == pb.ATTACHMENT_STAGE_INDEXING and progress.done >= passages:
                router.kill()
    except grpc.RpcError:
        # As is to be expected of one that was killed.
        pass


async def _look(folder: Path, router: RouterProcess) -> list[str]:
    violations = []
    listed = (await router.stub.ListAttachments(pb.ListAttachmentsRequest(account_id=ACCOUNT))).attachments
    if [each.size_bytes for each in listed] != [len(KEPT)]:
        violations.append(f"documents of {[each.size_bytes for each in listed]} bytes are listed")
    if await _found(router) != [KEPT.decode()]:
        violations.append("passages of an unfinished document are found, or hide others")
    if left := _files_in(folder) - FILES:
        violations.append(f"there are files {left}")
    return violations


def _files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def _found(router: RouterProcess) -> list[str]:
    request = pb.PreviewGroundingRequest(
        account_id=ACCOUNT, question="How long is the warranty?", model="mezzo", attachments=True
    )
    return [passage.text for passage in (await router.stub.PreviewGrounding(request)).passages]
