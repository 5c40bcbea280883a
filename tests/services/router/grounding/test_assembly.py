"""Parts that settings switch on; nothing else is opened or loaded."""

import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from legato_protos.router.v1 import grounding_pb2 as pb
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.router.grounding.assembly import open_grounding
from services.router.grounding.settings import GroundingSettings

KEY = f"1:{'ab' * 32}"


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_nothing_is_opened_until_something_is_configured(tmp_path: Path, log: Log) -> None:
    async with AsyncExitStack() as stack:
        settings = GroundingSettings(data=tmp_path, grounding_key=KEY)
        assert open_grounding(settings, SystemClock(), log, stack).grounding is None
    assert files_in(tmp_path) == []


async def test_search_alone_needs_no_store(tmp_path: Path, log: Log) -> None:
    async with AsyncExitStack() as stack:
        settings = GroundingSettings(data=tmp_path, search_url="http://127.0.0.1:1")
        assert open_grounding(settings, SystemClock(), log, stack).grounding is not None
    assert files_in(tmp_path) == []


async def test_what_is_configured_is_told_with_its_limits(tmp_path: Path, log: Log) -> None:
    async with AsyncExitStack() as stack:
        settings = GroundingSettings(data=tmp_path, grounding_key=KEY)
        assert open_grounding(settings, SystemClock(), log, stack).config == pb.GroundingConfig()
        settings = GroundingSettings(
            data=tmp_path, grounding_key=KEY, memory=True, attachments=True, search_url="http://127.0.0.1:1"
        )
        config = open_grounding(settings, SystemClock(), log, stack).config
    assert config.memory == pb.MemoryConfig(notes_most=200, note_characters_most=2_000, prompt_tokens_most=512)
    assert (config.attachments.attachments_most, config.attachments.bytes_most) == (200, 10 * 1024**2)
    assert (config.attachments.pages_most, config.attachments.prompt_tokens_most) == (1000, 2048)
    assert config.search.rounds_most == 3


def test_router_without_grounding_loads_nothing_that_only_grounding_needs() -> None:
    look = (
        "import sys, services.router.__main__;"
        "print([name for name in ('sqlalchemy', 'cryptography', 'pypdf') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_every_mistake_is_named_at_once() -> None:
    settings = GroundingSettings(memory=True, search_url="searx.test", database_url="postgresql://elsewhere.test/x")
    with pytest.raises(SettingsError) as refusal:
        settings.check()
    named = str(refusal.value)
    for variable in ("LEGATO_GROUNDING_KEY is not set", "LEGATO_SEARCH_URL", "LEGATO_DATABASE_REGION"):
        assert variable in named


@pytest.mark.parametrize("url", ["searx.test", "http://", "http://searx.test:port", "https://searx.test:0"])
def test_search_address_without_a_host_or_with_an_invalid_port_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="LEGATO_SEARCH_URL must"):
        GroundingSettings(search_url=url).check()


def test_mistake_in_the_key_is_named_without_quoting_it() -> None:
    with pytest.raises(SettingsError, match="LEGATO_GROUNDING_KEY: entry 1 is not VERSION:HEX") as refusal:
        GroundingSettings(memory=True, grounding_key="a-secret").check()
    assert "a-secret" not in str(refusal.value)


def test_space_that_is_too_small_for_one_document_is_refused() -> None:
    with pytest.raises(SettingsError, match="LEGATO_UPLOAD_BYTES must"):
        GroundingSettings(attachments=True, grounding_key=KEY, attachment_bytes=101, upload_bytes=100).check()
