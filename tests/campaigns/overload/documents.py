"""Documents that are sent slowly, or are slow to read, to a router with no more memory than its container has. Other
accounts add theirs meanwhile."""

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
from ruamel.yaml import YAML

from legato_protos.router.v1.grounding_pb2 import AddAttachmentRequest
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import from_rpc_error
from services.router.grounding.files.reader import MEMORY_BYTES
from services.router.grounding.files.turns import AT_ONCE
from services.router.grounding.settings import GroundingSettings
from tests.support.pdfs import assemble_pdf
from tests.support.servers.router_process import Call, RouterProcess, running_router_process

MANIFEST: Final = Path(__file__).parents[3] / "deploy" / "kubernetes" / "base" / "router.yaml"
SIZE_BYTES: Final = 10 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024
UPLOAD_BYTES: Final = GroundingSettings().upload_bytes
ATTACKER: Final = "acct_attacker"
# Of the long form: each account has as many uploads as it gets, and all together more than there is space for.
ACCOUNTS: Final = 30


def router_memory_bytes() -> int:
    """What the manifest leaves to the router, beside the readers of documents."""
    for resource_ in YAML(typ="safe").load_all(MANIFEST):
        if resource_["kind"] == "Deployment":
            [container] = resource_["spec"]["template"]["spec"]["containers"]
            limit = container["resources"]["limits"]["memory"]
            return int(limit.removesuffix("Mi")) * 1024**2 - AT_ONCE * MEMORY_BYTES
    raise ValueError("the manifest has no Deployment")


@dataclass
class Flood:
    """What became of documents and notes."""

    opened: int = 0
    refused: int = 0
    added: int = 0
    noted: int = 0
    peak_bytes: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"uploads opened {self.opened}  refused {self.refused}  others' documents {self.added}, notes {self.noted}"
            f"  router {self.peak_bytes / 1e6:.0f} MB at most"
        )


async def run_documents(folder: Path, uploads: int, others: int) -> list[tuple[str, Flood]]:
    async with running_router_process(folder, router_memory_bytes()) as router:
        return [
            ("uploads of one account", await run_flood(router, [ATTACKER], uploads, others)),
            ("slow documents", await run_slow_documents(router, 4, others)),
            (
                "uploads of many",
                await run_flood(router, [f"{ATTACKER}_{number}" for number in range(ACCOUNTS)], uploads // 20, 0),
            ),
        ]


async def open_upload(router: RouterProcess, account_id: str) -> Call:
    """Sends all of a document but its last byte; raises if the router refuses it."""
    call: Call = router.stub.AddAttachment()
    head = AddAttachmentRequest(account_id=account_id, name="a.txt", size_bytes=SIZE_BYTES)
    try:
        await _exchange(call, head)
        for at in range(0, SIZE_BYTES - 1, PIECE_BYTES):
            await _exchange(call, AddAttachmentRequest(piece=b"x" * min(PIECE_BYTES, SIZE_BYTES - 1 - at)))
    except grpc.RpcError as error:
        raise from_rpc_error(error, "The router") from None
    return call


async def _exchange(call: Call, request: AddAttachmentRequest) -> None:
    """A router that has refused the document says why when it is asked, and not when more is sent."""
    await call.write(request)
    await call.read()


async def run_flood(router: RouterProcess, accounts: Sequence[str], uploads: int, others: int) -> Flood:
    """Each of these accounts opens so many uploads, and ends none."""
    flood = Flood()
    opening = [open_upload(router, account_id) for account_id in accounts for _ in range(uploads)]
    opened = await asyncio.gather(*opening, return_exceptions=True)
    calls = [call for call in opened if not isinstance(call, BaseException)]
    flood.opened, flood.refused = len(calls), len(opened) - len(calls)
    for refusal in opened:
        is_told = isinstance(refusal, LegatoError) and refusal.reason in (Reason.TOO_MANY_AT_ONCE, Reason.SATURATED)
        if isinstance(refusal, BaseException) and not is_told:
            flood.violations.append(f"an upload failed: {refusal!r}")
    await _add_others(router, flood, others)
    for call in calls:
        call.cancel()
    if len(calls) * SIZE_BYTES > UPLOAD_BYTES:
        flood.violations.append(f"{len(calls)} uploads take more space than there is")
    return flood


async def run_slow_documents(router: RouterProcess, documents: int, others: int) -> Flood:
    """One account has several documents read that take as long as they may."""
    flood = Flood(opened=documents)
    slow = [asyncio.ensure_future(router.add(ATTACKER, slow_pdf())) for _ in range(documents)]
    # A note is written when the first is received.
    await router.note(ATTACKER)
    await _add_others(router, flood, others)
    if any(task.done() for task in slow):
        flood.violations.append("others waited for documents that are slow to read")
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    return flood


async def _add_others(router: RouterProcess, flood: Flood, others: int) -> None:
    for number in range(others):
        account_id = f"acct_{number}"
        try:
            await router.note(account_id)
            flood.noted += 1
            flood.added += (await router.add(account_id, b"The warranty lasts for five years.")).HasField("attachment")
        except grpc.RpcError as error:
            flood.violations.append(f"another account was refused: {from_rpc_error(error, 'The router')}")
    flood.peak_bytes = router.peak_bytes


def slow_pdf() -> bytes:
    """Small, with many pages of very many letters, each of which is put on the page by itself."""
    drawing = zlib.compress(b"BT /F1 12 Tf 14 TL 72 720 Td " + b"(a) Tj T* " * 20_000 + b"ET")
    return assemble_pdf([drawing] * 400, "/Filter /FlateDecode ")
