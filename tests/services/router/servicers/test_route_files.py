"""The routes file of a router, edited from afar: checked, tried and written."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from legato_protos.router.v1 import route_files_pb2 as pb
from services.chassis.rpc.server import Context
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.router.providers import open_provider
from services.router.routing.model_states import ModelStates
from services.router.routing.reload import Reload
from services.router.routing.routes import load_routes
from services.router.routing.target import DEFAULT_TIMEOUTS
from services.router.servicers.route_files import RouteFileServicer
from tests.support.upstreams.openai import Reply, Upstream

NO_CONTEXT = cast(Context, None)
FILE = """
# The house's own server.
[providers.host]
kind = "openai"
base_url = "{base_url}"
zero_retention = true
api_key_env = "HOST_API_KEY"
[models.big]
provider = "host"
name = "vendor/big"
context_tokens = 10000
max_output_tokens = 1000
[models.new]
provider = "host"
name = "vendor/new"
context_tokens = 10000
max_output_tokens = 1000
[classes.mezzo]
models = ["big"]
[classes.forte]
models = ["big"]
[classes.fortissimo]
models = ["big"]
"""
KEY = "canary-of-a-key"


class EditedRouter:
    def __init__(self, path: Path, log: Log) -> None:
        self.path = path
        self.open_one = partial(open_provider, local_model_socket=path.parent / "no-model.sock")
        self.model_states = ModelStates(load_routes(path), self.open_one, SystemClock(), log)
        reload = Reload(path, DEFAULT_TIMEOUTS, self.model_states, log)
        self.files = RouteFileServicer(self.model_states, reload, self.open_one, SystemClock())

    async def read(self) -> pb.GetRouteFileResponse:
        return await self.files.GetRouteFile(pb.GetRouteFileRequest(), NO_CONTEXT)

    async def preview(self, text: str, **canary: Any) -> pb.PreviewRouteFileResponse:
        edit = pb.CanaryEdit(**canary) if canary else None
        return await self.files.PreviewRouteFile(pb.PreviewRouteFileRequest(text=text, canary=edit), NO_CONTEXT)

    async def try_model(self, text: str, model: str) -> pb.TryModelResponse:
        return await self.files.TryModel(pb.TryModelRequest(text=text, model=model), NO_CONTEXT)

    async def write(self, text: str, base_digest: str) -> pb.WriteRouteFileResponse:
        request = pb.WriteRouteFileRequest(text=text, base_digest=base_digest)
        return await self.files.WriteRouteFile(request, NO_CONTEXT)


@pytest.fixture
async def edited(
    tmp_path: Path, upstream: Upstream, log: Log, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EditedRouter]:
    monkeypatch.setenv("HOST_API_KEY", KEY)
    path = tmp_path / "routes.toml"
    path.write_text(FILE.format(base_url=upstream.base_url))
    router = EditedRouter(path, log)
    yield router
    await router.model_states.aclose()


async def test_text_is_told_with_its_digest_and_without_keys(edited: EditedRouter) -> None:
    found = await edited.read()
    assert found.text == edited.path.read_text()
    assert found.digest == hashlib.sha256(edited.path.read_bytes()).hexdigest()
    assert list(found.models) == ["big", "new"]
    assert (found.obstacle, KEY in str(found)) == ("", False)


async def test_file_that_may_have_a_secret_is_not_told(edited: EditedRouter) -> None:
    text = edited.path.read_text()
    for secret, line in (
        ('api_key = "short"\n', 4),
        ('body = { x-secret = "short" }\n', 4),
        ("# was sk-proj-0a1b2c3d4e5f6g7h8i\n", 4),
    ):
        edited.path.write_text(text.replace("kind =", f"{secret}kind ="))
        found = await edited.read()
        assert (found.text, [each.line for each in found.secrets]) == ("", [line]), secret
        preview = await edited.preview(text)
        assert not preview.diff
        assert secret not in str(preview)
    edited.path.write_text(text.replace("http://", "http://me:pass@"))
    assert [each.key for each in (await edited.read()).secrets] == ["providers.host.base_url"]


async def test_preview_tells_mistakes_by_line_and_changes_nothing(edited: EditedRouter) -> None:
    text = edited.path.read_text()
    preview = await edited.preview(
        text.replace('[classes.forte]\nmodels = ["big"]', '[classes.forte]\nmodels = ["bg"]')
    )
    [mistake] = preview.mistakes
    assert (mistake.line, mistake.key, mistake.what) == (21, "classes.forte.models", 'no model named "bg"')
    assert preview.version == ""
    [mistake] = (await edited.preview("[classes\n")).mistakes
    assert (mistake.line, mistake.key) == (1, "")
    [mistake] = (await edited.preview(f"{text}colour = 1\n")).mistakes
    assert (mistake.line, mistake.key) == (24, "classes.fortissimo.colour")
    assert edited.path.read_text() == text


async def test_preview_tells_the_difference_line_by_line_and_as_changes(edited: EditedRouter) -> None:
    text = edited.path.read_text()
    wanted = text.replace('[classes.forte]\nmodels = ["big"]', "[classes.forte]\ntiers = [{ big = 3, new = 1 }]")
    preview = await edited.preview(wanted)
    assert [line for line in preview.diff if line[0] in "+-"] == [
        *("--- on disk", "+++ edited"),
        *('-models = ["big"]', "+tiers = [{ big = 3, new = 1 }]"),
    ]
    told = [
        (change.kind, change.class_id, change.model_name, change.before, change.after) for change in preview.changes
    ]
    assert told == [
        (pb.ROUTE_CHANGE_KIND_WEIGHT, "forte", "vendor/big", "1", "3"),
        (pb.ROUTE_CHANGE_KIND_MODEL_ADDED, "forte", "vendor/new", "", "1"),
    ]
    assert preview.version != edited.model_states.routes.version
    # The text of the file changes nothing.
    unchanged = await edited.preview(text)
    assert (list(unchanged.diff), list(unchanged.changes)) == ([], [])


async def test_canary_is_begun_changed_and_ended_in_the_text_alone(edited: EditedRouter) -> None:
    text = edited.path.read_text()
    begun = await edited.preview(text, class_id="forte", model="new", percent=5)
    assert '[classes.forte]\nmodels = ["big"]\ncanary = { model = "new", percent = 5 }\n' in begun.text
    [change] = begun.changes
    assert (change.kind, change.model_name, change.after) == (pb.ROUTE_CHANGE_KIND_CANARY, "vendor/new", "5")
    raised = await edited.preview(begun.text, class_id="forte", model="new", percent=12.5)
    assert "percent = 12.5 }" in raised.text
    assert (await edited.preview(raised.text, class_id="forte", percent=0)).text == text
    [mistake] = (await edited.preview("[classes]\nforte = {}\n", class_id="forte", model="new", percent=5)).mistakes[:1]
    assert "has to be edited in the text" in mistake.what


async def test_canary_of_a_class_that_is_no_table_is_a_mistake(edited: EditedRouter) -> None:
    text = edited.path.read_text()
    for wrong in ('forte = "big"', "forte = 1", "forte = []", "forte = { canary = 1 }"):
        preview = await edited.preview(
            text.replace("[classes.forte]", f"[classes]\n{wrong}\n[classes.piano]"),
            class_id="forte",
            model="new",
            percent=5,
        )
        assert preview.mistakes[0].key == "classes.forte", wrong


async def test_model_of_a_text_is_tried_without_anything_else(
    edited: EditedRouter, upstream: Upstream, log_text: Callable[[], str]
) -> None:
    text = edited.path.read_text().replace("vendor/new", "vendor/newer")
    answer = await edited.try_model(text, "new")
    assert (answer.failure, answer.model_name, answer.completion_tokens) == ("", "vendor/newer", 7)
    assert answer.duration_s >= answer.first_token_s > 0
    [request] = upstream.requests
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert "Hello" not in f"{answer}{log_text()}"
    # It counts for no model that serves.
    assert all(state.breaker.attempts == 0 for state in edited.model_states.by_class["forte"].all)
    upstream.default_reply = Reply(
        status=401, body='{"error":{"message":"Incorrect API key provided: canary-of-a-key"}}'
    )
    refused = await edited.try_model(text, "new")
    assert (refused.http_status, KEY in str(refused)) == (401, False)
    assert refused.failure
    assert [each.what for each in (await edited.try_model(text, "newer")).mistakes] == ['no model named "newer"']


async def test_text_that_takes_a_key_to_another_server_is_refused(edited: EditedRouter, upstream: Upstream) -> None:
    text = edited.path.read_text()
    stolen = text.replace(upstream.base_url, "http://thief.test/v1")
    for wanted, what in (
        (stolen, "would get the API key of another server"),
        (text.replace("HOST_API_KEY", "LEGATO_KEY_PEPPERS"), "names a variable, LEGATO_KEY_PEPPERS"),
        (text.replace('env = "HOST_API_KEY"', 'file = "/etc/hostname"'), "outside the folders"),
    ):
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("LEGATO_KEY_PEPPERS", "1:pepper")
            assert what in str((await edited.preview(wanted)).mistakes), what
            assert (await edited.write(wanted, (await edited.read()).digest)).outcome == pb.WRITE_OUTCOME_MISTAKEN
            assert what in str((await edited.try_model(wanted, "new")).mistakes)
    assert upstream.requests == []
    assert edited.path.read_text() == text


async def test_key_that_the_file_no_longer_names_goes_to_no_other_server_either(
    edited: EditedRouter, upstream: Upstream
) -> None:
    text = edited.path.read_text()
    without_key = text.replace('api_key_env = "HOST_API_KEY"\n', "")
    written = await edited.write(without_key, (await edited.read()).digest)
    assert written.outcome == pb.WRITE_OUTCOME_WRITTEN
    thief = text.replace(upstream.base_url, "http://thief.test/v1").replace("host", "thief")
    for wanted, keys in ((thief, ["providers.thief"]), (text, [])):
        assert [each.key for each in (await edited.preview(wanted)).mistakes] == keys
        assert [each.key for each in (await edited.try_model(wanted, "new")).mistakes] == keys
    # Where the file is, that may be changed.
    edited.path.write_text(thief)
    await edited.preview(thief)
    edited.path.write_text(text)
    assert list((await edited.preview(thief)).mistakes) == []


@pytest.mark.parametrize("alias", ["./host.key", "../{folder}/host.key", "{path}", "link.key"])
async def test_key_file_goes_to_no_other_server_by_another_name_of_it(
    edited: EditedRouter, upstream: Upstream, alias: str
) -> None:
    folder = edited.path.parent
    (folder / "host.key").write_text(KEY)
    (folder / "link.key").symlink_to("host.key")
    text = edited.path.read_text().replace('api_key_env = "HOST_API_KEY"', 'api_key_file = "host.key"')
    edited.path.write_text(text)
    name = alias.format(folder=folder.name, path=folder / "host.key")
    thief = text.replace(upstream.base_url, "http://thief.test/v1").replace('"host.key"', f'"{name}"')
    [mistake] = (await edited.try_model(thief, "new")).mistakes
    assert mistake.what.startswith("would get the API key of another server")
    assert not (await edited.preview(text.replace('"host.key"', f'"{name}"'))).mistakes


async def test_of_two_that_edit_the_second_overwrites_nothing(edited: EditedRouter) -> None:
    text, base = edited.path.read_text(), (await edited.read()).digest
    texts = [text.replace("10000", number) for number in ("20000", "30000")]
    answers = await asyncio.gather(*(edited.write(each, base) for each in texts))
    assert sorted(answer.outcome for answer in answers) == [pb.WRITE_OUTCOME_WRITTEN, pb.WRITE_OUTCOME_CONFLICT]
    [written] = [
        each for each, answer in zip(texts, answers, strict=True) if answer.outcome == pb.WRITE_OUTCOME_WRITTEN
    ]
    assert edited.path.read_text() == written
    # Once more has no effect, as where routers share a file.
    again = await edited.write(written, base)
    assert (again.outcome, again.version) == (pb.WRITE_OUTCOME_WRITTEN, load_routes(edited.path).version)
    # It is on disk, and not in use.
    assert edited.model_states.routes.version != again.version
    assert [path.name for path in edited.path.parent.iterdir()] == ["routes.toml"]


async def test_read_only_file_is_not_written_and_says_why(
    edited: EditedRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, base = edited.path.read_text(), (await edited.read()).digest
    mounted = edited.path.with_name("mounted.toml")
    edited.path.rename(mounted)
    edited.path.symlink_to(mounted)
    assert "mounted ConfigMap" in (await edited.read()).obstacle
    answer = await edited.write(text.replace("10000", "20000"), base)
    assert (answer.outcome, mounted.read_text()) == (pb.WRITE_OUTCOME_NOT_WRITABLE, text)
    edited.path.unlink()
    mounted.rename(edited.path)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "read-only" in (await edited.preview(text)).obstacle
    answer = await edited.write(text.replace("10000", "20000"), base)
    assert (answer.outcome, edited.path.read_text()) == (pb.WRITE_OUTCOME_NOT_WRITABLE, text)
