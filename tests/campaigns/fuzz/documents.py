"""The owner's side: documents of any content that are sent in any way, and whose senders leave at any moment.

After each of them another account adds a document and a note. In the end all places are free, and every document that
is listed is one that was sent completely.
"""

import asyncio
import io
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc.aio

from legato_protos.router.v1 import grounding_pb2 as pb
from legato_protos.router.v1.grounding_pb2_grpc import GroundingAdminServiceStub
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import from_rpc_error, open_channel
from services.chassis.telemetry.log import Log
from services.router.grounding.documents.intake import BY_ACCOUNT_MOST
from tests.cli.grounding_harness import grounding_harness
from tests.support.pdfs import make_pdf, make_pdf_bomb

HOSTILE_AT_ONCE: Final = 6
ACCOUNTS: Final = ("acct_1", "acct_2", "acct_3")
VICTIM: Final = "acct_victim"
PLAIN: Final = b"The warranty lasts for five years."
MOST_BYTES: Final = 300_000
ENDS: Final = ("complete", "complete", "leaves", "leaves at the end", "stops")
WITHIN_S: Final = 120.0


async def fuzz_documents(seconds: float, seed: int) -> list[str]:
    """Returns what was wrong; each with the number by which the seed makes it again."""
    found: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(f"unhandled: {context}"))
    with tempfile.TemporaryDirectory() as folder:
        async with (
            grounding_harness(Path(folder), Log("router", io.StringIO()), attachment_bytes=MOST_BYTES) as harness,
            open_channel(harness.address) as channel,
        ):
            campaign = _Campaign(channel, seed, found)
            over_at_s = time.monotonic() + seconds
            while time.monotonic() < over_at_s and len(found) < 20:
                await campaign.run_round()
            await campaign.look_at_places()
    return found


class _Campaign:
    def __init__(self, channel: grpc.aio.Channel, seed: int, found: list[str]) -> None:
        self._stub = GroundingAdminServiceStub(channel)
        self._seed = seed
        self._found = found
        self._number = 0
        self._sizes: set[int] = set()

    async def run_round(self) -> None:
        hostile = [asyncio.create_task(self._send_hostile(number + self._number)) for number in range(HOSTILE_AT_ONCE)]
        self._number += HOSTILE_AT_ONCE
        await self._add_plainly()
        await asyncio.gather(*hostile)
        for account_id in ACCOUNTS:
            for each in (
                await self._stub.ListAttachments(pb.ListAttachmentsRequest(account_id=account_id))
            ).attachments:
                if each.size_bytes not in self._sizes:
                    self._found.append(f"seed {self._seed}: a document of {each.size_bytes} bytes was never sent")
                removal = pb.RemoveAttachmentRequest(account_id=account_id, attachment_id=each.attachment_id)
                await self._stub.RemoveAttachment(removal)

    async def look_at_places(self) -> None:
        """Each account can have all its places, so none was lost."""
        async with asyncio.timeout(WITHIN_S):
            for account_id in ACCOUNTS:
                opened = [self._stub.AddAttachment() for _ in range(BY_ACCOUNT_MOST)]
                for call in opened:
                    await call.write(pb.AddAttachmentRequest(account_id=account_id, size_bytes=10, piece=b"x"))
                    try:
                        await call.read()
                    except grpc.RpcError as error:
                        self._found.append(f"seed {self._seed}: {from_rpc_error(error, 'The router')}")
                for call in opened:
                    call.cancel()

    async def _add_plainly(self) -> None:
        head = pb.AddAttachmentRequest(account_id=VICTIM, name="a", size_bytes=len(PLAIN), piece=PLAIN)
        what = f"seed {self._seed}, beside those up to {self._number}"
        try:
            async with asyncio.timeout(WITHIN_S):
                await self._stub.AddNote(pb.AddNoteRequest(account_id=VICTIM, text="I live in Ottawa."))
                await self._stub.RemoveAllNotes(pb.RemoveAllNotesRequest(account_id=VICTIM))
                *_, last = [response async for response in self._stub.AddAttachment(iter([head]))]
                removal = pb.RemoveAttachmentRequest(account_id=VICTIM, attachment_id=last.attachment.attachment_id)
                await self._stub.RemoveAttachment(removal)
        except (grpc.RpcError, TimeoutError) as error:
            self._found.append(f"{what}: {error!r}")

    async def _send_hostile(self, number: int) -> None:
        chance = random.Random(f"{self._seed}-{number}")
        document = random_document(chance)[:MOST_BYTES]
        end = chance.choice(ENDS)
        size_bytes = chance.choice([len(document), len(document), 0, -1, len(document) + 1, 2**62])
        if end != "stops":
            self._sizes.add(len(document))
        call = self._stub.AddAttachment()
        account_id = chance.choice(ACCOUNTS)
        try:
            async with asyncio.timeout(WITHIN_S):
                await call.write(
                    pb.AddAttachmentRequest(account_id=account_id, name="\u202e/..", size_bytes=size_bytes)
                )
                await call.read()
                for piece in _pieces(chance, document if end != "stops" else document[: len(document) // 2]):
                    await call.write(pb.AddAttachmentRequest(piece=piece))
                    await call.read()
                    if end == "leaves" and chance.random() < 0.3:
                        return
                if end == "stops":
                    return
                await call.done_writing()
                while end == "complete" and await call.read() is not grpc.aio.EOF:
                    pass
        except grpc.RpcError as error:
            self._judge(from_rpc_error(error, "The router"), number)
        except TimeoutError:
            self._found.append(f"seed {self._seed}, {number}: no end")
        finally:
            call.cancel()

    def _judge(self, refusal: LegatoError, number: int) -> None:
        if refusal.reason is Reason.INTERNAL:
            self._found.append(f"seed {self._seed}, {number}: INTERNAL")


def _pieces(chance: random.Random, document: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(document):
        size = chance.choice([1, 100, 65_536, 100_000])
        yield document[at : at + size]
        at += size
        if chance.random() < 0.1:
            yield b""


def random_document(chance: random.Random) -> bytes:
    document = chance.choice(
        [
            make_pdf(["One page.", "", "Three."]),
            make_pdf_bomb(20_000_000),
            b"<html><body>" + b"<div><svg>" * chance.randrange(2_000) + b"text",
            "\n\n".join(f"Paragraph {number}." for number in range(chance.randrange(2_000))).encode(),
            chance.randbytes(chance.randrange(5_000)),
            b"x" * chance.randrange(200_000),
        ]
    )
    changed = bytearray(document)
    for _ in range(chance.choice([0, 0, 1, 20])):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)
