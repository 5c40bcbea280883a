import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from tests.cli.grounding_harness import ACCOUNT, GroundingHarness, grounding_harness


@pytest.fixture
async def harness(tmp_path: Path, log: Log) -> AsyncIterator[GroundingHarness]:
    async with grounding_harness(tmp_path, log) as harness:
        yield harness


async def test_notes_are_added_listed_and_removed(harness: GroundingHarness) -> None:
    added = json.loads((await harness.run("memory", "add", ACCOUNT, "I drink tea.")).stdout)
    assert added["text"] == "I drink tea."
    assert added["created_at"].endswith("Z")
    from_stdin = json.loads((await harness.run("memory", "add", ACCOUNT, stdin="I live in Ottawa.\n")).stdout)
    assert json.loads((await harness.run("memory", "list", ACCOUNT)).stdout) == [added, from_stdin]
    assert (await harness.run("memory", "remove", ACCOUNT, added["note_id"])).exit_code == 0
    assert json.loads((await harness.run("memory", "list", ACCOUNT)).stdout) == [from_stdin]


async def test_notes_are_edited_and_all_removed(harness: GroundingHarness) -> None:
    added = json.loads((await harness.run("memory", "add", ACCOUNT, "I drink tea.")).stdout)
    await harness.run("memory", "add", ACCOUNT, "I live in Ottawa.")
    edited = json.loads((await harness.run("memory", "edit", ACCOUNT, added["note_id"], "I drink coffee.")).stdout)
    assert edited == {**added, "text": "I drink coffee."}
    assert json.loads((await harness.run("memory", "clear", ACCOUNT)).stdout) == {"removed": 2}
    assert json.loads((await harness.run("memory", "list", ACCOUNT)).stdout) == []


async def test_note_that_does_not_open_is_listed_without_its_text(tmp_path: Path, log: Log) -> None:
    async with grounding_harness(tmp_path, log) as harness:
        await harness.run("memory", "add", ACCOUNT, "I drink tea.")
    async with grounding_harness(tmp_path, log, grounding_key=f"2:{'cd' * 32}") as harness:
        [note] = json.loads((await harness.run("memory", "list", ACCOUNT)).stdout)
        assert note["text"] is None
        assert (await harness.run("memory", "remove", ACCOUNT, note["note_id"])).exit_code == 0


async def test_note_for_an_unknown_account_and_note_that_is_not_there_are_refused(harness: GroundingHarness) -> None:
    for arguments, message in (
        (("add", "acct_2", "x"), "no such account"),
        (("list", "acct_2"), "no such account"),
        (("remove", ACCOUNT, "note_none"), "no such note"),
        (("add", ACCOUNT, " "), "1 to 2,000 characters"),
    ):
        result = await harness.run("memory", *arguments)
        assert result.exit_code == 1
        assert message in result.stderr


async def test_note_that_is_no_utf_8_is_misuse(harness: GroundingHarness) -> None:
    # As Python hands on bytes of a shell that are none.
    for result in (
        await harness.run("memory", "add", ACCOUNT, "caf\udce9"),
        await harness.run("memory", "add", ACCOUNT, stdin=b"caf\xe9"),
    ):
        assert result.exit_code == 2
        assert result.stderr.endswith("must be UTF-8 text.\n")
        assert result.stderr.count("\n") == 1
    assert json.loads((await harness.run("memory", "list", ACCOUNT)).stdout) == []


async def test_memory_that_is_not_configured_says_which_setting_is_missing(tmp_path: Path, log: Log) -> None:
    for settings in ({"memory": False}, {"memory": False, "attachments": False}):
        async with grounding_harness(tmp_path, log, **settings) as harness:
            result = await harness.run("memory", "add", ACCOUNT, "x")
            assert result.exit_code == 1
            assert "LEGATO_MEMORY=true" in result.stderr
