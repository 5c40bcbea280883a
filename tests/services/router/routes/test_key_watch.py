"""API keys that are rotated while chats run: nothing is restarted, and nothing is written down."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.router.metrics import show_keys
from services.router.routes.key_watch import KeyWatch
from tests.services.router.harness import Router, running_router, target
from tests.support.upstreams.anthropic import AnthropicUpstream
from tests.support.upstreams.gemini import GeminiUpstream
from tests.support.upstreams.openai import Reply, Upstream


class MountedSecret:
    """A file as Kubernetes mounts it: a link to a file in a folder that a second link names."""

    def __init__(self, folder: Path, content: str) -> None:
        self._folder = folder
        self._version = 0
        folder.mkdir()
        self.replace(content)
        self.path = folder / "key"
        self.path.symlink_to("..data/key")

    def replace(self, content: str) -> None:
        self._version += 1
        (self._folder / f"..{self._version}").mkdir()
        (self._folder / f"..{self._version}/key").write_text(content)
        (self._folder / "..new").symlink_to(f"..{self._version}")
        (self._folder / "..new").rename(self._folder / "..data")


@pytest.fixture
def secret(tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path / "providers", "secret\n")


def use_file(router: Router, path: Path) -> None:
    providers = router.model_states.routes.providers
    router.model_states.use_keys({name: replace(each, api_key_file=path) for name, each in providers.items()})


@pytest.fixture
async def watch(router: Router, secret: MountedSecret, log: Log) -> KeyWatch:
    use_file(router, secret.path)
    return KeyWatch(router.model_states, log)


async def test_rotated_key_is_sent_with_new_calls_and_running_ones_go_on(
    router: Router, upstream: Upstream, secret: MountedSecret, watch: KeyWatch, log_text: Callable[[], str]
) -> None:
    await watch.look()
    upstream.replies.append(Reply(contents=["a"] * 20, event_delay_s=0.01))
    running = router.open()
    last = await running.receive()
    secret.replace("rotated")
    await watch.look()
    await router.ask()
    while (response := await running.receive()) is not None:
        last = response
    assert last is not None
    assert last.HasField("finished")
    await router.ask()
    assert [each.headers["Authorization"] for each in upstream.requests] == [
        "Bearer secret",
        "Bearer rotated",
        "Bearer rotated",
    ]
    # The connection of the first call serves a later one.
    assert upstream.requests[2].connection in {each.connection for each in upstream.requests[:2]}
    assert '"provider.key_replaced"' in log_text()
    assert "rotated" not in log_text()


@pytest.mark.parametrize("content", ["", "two\nlines", None])
async def test_last_key_stays_in_use_while_the_file_has_none(
    content: str | None,
    router: Router,
    upstream: Upstream,
    secret: MountedSecret,
    watch: KeyWatch,
    log_text: Callable[[], str],
) -> None:
    registry, provider = Registry(), {"gen_ai_provider_name": "main"}
    show_keys(router.model_states, watch, registry)
    if content is None:
        secret.path.unlink()
    else:
        secret.replace(content)
    await watch.look()
    await watch.look()
    await router.ask()
    assert upstream.requests[-1].headers["Authorization"] == "Bearer secret"
    assert registry.get_sample_value("legato_provider_key_usable", provider) == 0
    # Not at each look.
    assert log_text().count('"provider.key_unusable"') == 1
    if content is None:
        secret.path.symlink_to("..data/key")
    secret.replace("rotated")
    await watch.look()
    await router.ask()
    assert upstream.requests[-1].headers["Authorization"] == "Bearer rotated"
    assert registry.get_sample_value("legato_provider_key_usable", provider) == 1


@pytest.mark.parametrize(
    ("vendor", "header"), [(AnthropicUpstream, "Authorization"), (GeminiUpstream, "x-goog-api-key")]
)
async def test_every_kind_of_provider_takes_the_new_key(
    vendor: type[Upstream], header: str, secret: MountedSecret, socket_folder: Path, log: Log
) -> None:
    async with vendor() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        use_file(router, secret.path)
        secret.replace("rotated")
        await KeyWatch(router.model_states, log).look()
        await router.ask()
        assert upstream.requests[-1].headers[header].removeprefix("Bearer ") == "rotated"
