"""The preview of a chat: what it shows is what a model gets, and no model is asked, and no account charged."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa

from legato_protos.router.v1 import grounding_pb2 as pb
from legato_protos.router.v1.grounding_pb2_grpc import GroundingAdminServiceStub
from services.chassis.access_tokens import (
    METADATA_KEY,
    Access,
    AccessTokenSigner,
    AccessTokenVerifier,
    AccountRole,
)
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.channel import from_rpc_error, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.router.chat.completion import Completions
from services.router.grounding.assembly import Opened
from services.router.grounding.documents.library import Library
from services.router.grounding.servicers.library import GroundingAdminServicer
from tests.services.router.grounding.harness import ACCOUNT, RouterGroundingHarness, running_harness
from tests.services.router.harness import target
from tests.support.certificates import Authority
from tests.support.outside.searx import Searx
from tests.support.upstreams.openai import Reply, Upstream

QUESTION = "How long is the warranty of the Zephyr?"
PAGES = ["The Zephyr weighs nine kilos.", "The warranty of the Zephyr lasts for five years."]
SWITCHES = ("search", "memory", "attachments")


def admin_of(completions: Completions, library: Library, log: Log) -> object:
    config = pb.GroundingConfig(memory=pb.MemoryConfig(notes_most=200))
    return GroundingAdminServicer(Opened(library=library, config=config), completions.preview, log)


@pytest.fixture
async def harness(
    socket_folder: Path, log: Log, upstream: Upstream, searx: Searx
) -> AsyncIterator[RouterGroundingHarness]:
    upstream.default_reply = Reply(usage=None)
    async with running_harness(
        socket_folder, log, upstream, searx=searx, also=lambda chats, library: admin_of(chats, library, log)
    ) as running:
        yield running


async def preview(folder: Path, question: str, **fields: Any) -> pb.PreviewGroundingResponse:
    given = {"account_id": ACCOUNT, "model": "forte", **dict.fromkeys(SWITCHES, True), **fields}
    async with open_channel(f"unix:{folder}/router.sock") as channel:
        stub = GroundingAdminServiceStub(channel)
        try:
            response: Any = await stub.PreviewGrounding(pb.PreviewGroundingRequest(question=question, **given))
        except grpc.RpcError as error:
            raise from_rpc_error(error, "The router") from None
    return response  # type: ignore[no-any-return]


def total(tokens: pb.PromptTokens) -> int:
    return tokens.character + tokens.notes + tokens.passages + tokens.search + tokens.question


async def fill(harness: RouterGroundingHarness) -> None:
    await harness.note("I own a <Zephyr>.")
    await harness.note("I live in Ottawa.")
    await harness.attach("manual.pdf", PAGES)


@pytest.mark.parametrize(
    ("question", "fields"),
    [
        (QUESTION, {}),
        (QUESTION, {"search": False}),
        (QUESTION, {"memory": False}),
        (QUESTION, {"attachments": False, "search": False}),
        (QUESTION, dict.fromkeys(SWITCHES, False)),
        ("Bonjour !", {"search": False}),
        (QUESTION, {"account_id": "acct_2", "search": False}),
    ],
    ids=["all", "no-search", "no-memory", "memory-alone", "none", "no-match", "other-account"],
)
async def test_the_preview_shows_what_the_model_then_gets(
    harness: RouterGroundingHarness, socket_folder: Path, question: str, fields: dict[str, Any]
) -> None:
    await fill(harness)
    shown = await preview(socket_folder, question, **fields)
    assert harness.upstream.requests == []
    answer = await harness.ask(question, **fields)
    sent = harness.sent
    added = [message["content"] for message in sent[1:-1]]
    added += filter(None, [sent[-1]["content"].removeprefix(question).removeprefix("\n\n")])
    text = "\n\n".join(added)
    assert text == shown.added_text
    assert text.count("<note>") == len(shown.notes)
    assert text.count("<passage ") == len(shown.passages)
    for note in shown.notes:
        assert note.text.replace("<", "&lt;").replace(">", "&gt;") in text
    for passage in shown.passages:
        assert f'<passage number="{passage.number}" source="{passage.name}, page {passage.page}">' in text
        assert passage.text in text
    assert shown.offers_search == ("tools" in harness.upstream.requests[-1].json)
    assert total(shown.tokens) == answer.finished.usage.prompt_tokens
    assert shown.class_id == "forte"


async def test_each_part_has_its_tokens(harness: RouterGroundingHarness, socket_folder: Path) -> None:
    await fill(harness)
    shown = await preview(socket_folder, QUESTION)
    assert [note.text for note in shown.notes] == ["I own a <Zephyr>.", "I live in Ottawa."]
    assert [(passage.name, passage.page) for passage in shown.passages] == [("manual.pdf", 2)]
    assert 0 < sum(note.tokens for note in shown.notes) < shown.tokens.notes
    assert 0 < sum(passage.tokens for passage in shown.passages) < shown.tokens.passages
    assert shown.tokens.search > 0
    assert shown.context_tokens == 100_000


async def test_a_preview_writes_nothing_and_says_nothing(
    harness: RouterGroundingHarness, socket_folder: Path, searx: Searx, log_text: Callable[[], str]
) -> None:
    await fill(harness)

    def content(connection: sa.Connection) -> list[Any]:
        tables = ("notes", "attachments", "passages", "postings")
        return [connection.execute(sa.text(f"SELECT * FROM {table} ORDER BY 1, 2, 3")).all() for table in tables]

    before = await harness.database.read(content)
    await preview(socket_folder, QUESTION)
    assert await harness.database.read(content) == before
    assert harness.upstream.requests == []
    assert searx.queries == []
    for said in ("Zephyr", "Ottawa", "warranty", "manual"):
        assert said not in log_text()


async def test_auto_is_what_the_account_prefers(harness: RouterGroundingHarness, socket_folder: Path) -> None:
    assert (await preview(socket_folder, QUESTION, model="auto", preferred_class="mezzo")).class_id == "mezzo"
    assert (await preview(socket_folder, QUESTION, model="auto")).class_id == "forte"
    with pytest.raises(LegatoError) as refusal:
        await preview(socket_folder, QUESTION, model="gpt")
    assert refusal.value.reason is Reason.MODEL_UNKNOWN


@pytest.mark.parametrize("question", ["", "   ", "x" * 32_001])
async def test_a_question_that_is_none_is_refused(
    harness: RouterGroundingHarness, socket_folder: Path, question: str
) -> None:
    with pytest.raises(LegatoError) as refusal:
        await preview(socket_folder, question)
    assert refusal.value.reason is Reason.REQUEST_INVALID


async def test_a_store_that_fails_is_told_of_in_a_preview(
    harness: RouterGroundingHarness, socket_folder: Path, log_text: Callable[[], str]
) -> None:
    """A chat is answered without what cannot be read; a preview that showed nothing would be wrong."""
    await harness.note("I own a Zephyr.")
    await harness.database.write(lambda connection: connection.execute(sa.text("UPDATE notes SET sealed_text = 'x'")))
    with pytest.raises(LegatoError) as refusal:
        await preview(socket_folder, QUESTION)
    assert refusal.value.reason is Reason.UNAVAILABLE
    assert "Zephyr" not in log_text()


async def test_a_window_without_room_shows_that_nothing_is_added(
    socket_folder: Path, log: Log, upstream: Upstream
) -> None:
    small = target("main", context_tokens=300, max_output_tokens=50)
    async with running_harness(
        socket_folder, log, upstream, served_by=small, also=lambda chats, library: admin_of(chats, library, log)
    ) as harness:
        await harness.attach("manual.pdf", ["The Zephyr pump. " * 60])
        shown = await preview(socket_folder, "What about the Zephyr pump? " * 30)
        assert (shown.added_text, list(shown.passages), shown.context_tokens) == ("", [], 300)


SIGNER = AccessTokenSigner("44" * 32)
NOW_US = 1_000_000_000


def token_for(role: AccountRole, account_id: str = ACCOUNT) -> bytes:
    return SIGNER.sign(Access("user_1", "sess_1", account_id, role, False, NOW_US, NOW_US + 1))


async def reason_of(method: Any, request: Any, token: bytes) -> Reason | None:
    try:
        await method(request, metadata=((METADATA_KEY, token),))
    except grpc.RpcError as error:
        return from_rpc_error(error, "The router").reason
    return None


async def preview_nothing(chat: Any) -> pb.PreviewGroundingResponse:
    return pb.PreviewGroundingResponse(class_id="forte")


@pytest.mark.parametrize("way", ["socket", "tcp"])
async def test_a_console_previews_for_members_of_the_account_alone(socket_folder: Path, log: Log, way: str) -> None:
    authority = await asyncio.to_thread(Authority, socket_folder) if way == "tcp" else None
    servicer = GroundingAdminServicer(Opened(), preview_nothing, log)
    listen = f"unix:{socket_folder}/router-console.sock"
    server = RpcServer(
        "127.0.0.1:0" if authority else f"unix:{socket_folder}/router.sock",
        [servicer],
        log,
        authority.certificates("router", log) if authority else None,
        access=AccessCheck(AccessTokenVerifier(SIGNER.public_key()), lambda: NOW_US),
        console_listen="" if authority else listen,
        console_role="console",
    )
    await server.start()
    address = f"127.0.0.1:{server.port}" if authority else listen
    certificate = authority.certificates("console", log).current() if authority else None
    try:
        async with open_channel(address, certificate, "router") as channel:
            stub = GroundingAdminServiceStub(channel)
            request = pb.PreviewGroundingRequest(account_id=ACCOUNT, question="Hello?")
            for token, expected in (
                (b"", Reason.ACCESS_TOKEN_INVALID),
                (token_for(AccountRole.VIEWER), Reason.ROLE_MISSING),
                (token_for(AccountRole.OWNER, "acct_2"), Reason.ROLE_MISSING),
                (token_for(AccountRole.MEMBER), None),
                (token_for(AccountRole.OWNER), None),
            ):
                assert await reason_of(stub.PreviewGrounding, request, token) is expected
            config = pb.GetGroundingConfigRequest()
            assert await reason_of(stub.GetGroundingConfig, config, b"") is Reason.ACCESS_TOKEN_INVALID
            assert await reason_of(stub.GetGroundingConfig, config, token_for(AccountRole.VIEWER)) is None
            for method, given in (
                (stub.UpdateNote, pb.UpdateNoteRequest(account_id=ACCOUNT, note_id="note_1", text="x")),
                (stub.RemoveAllNotes, pb.RemoveAllNotesRequest(account_id=ACCOUNT)),
            ):
                assert await reason_of(method, given, token_for(AccountRole.VIEWER)) is Reason.ROLE_MISSING
                assert await reason_of(method, given, token_for(AccountRole.OWNER, "acct_2")) is Reason.ROLE_MISSING
                # Memory is not configured here.
                assert await reason_of(method, given, token_for(AccountRole.MEMBER)) is Reason.REQUEST_INVALID
    finally:
        await server.stop(0)
