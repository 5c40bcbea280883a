"""Providers' connections: where they lead and where not, whatever kind of provider it is."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from services.router.providers import open_provider
from services.router.providers.base import Failure, ProviderError, ProviderRoute, Timeouts
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.providers.asking import failure_of, opened, pieces_of, text_of
from tests.services.router.providers.certificates import make_certificate, server_context
from tests.support.upstreams.anthropic import AnthropicUpstream
from tests.support.upstreams.gemini import GeminiUpstream
from tests.support.upstreams.openai import Reply, Upstream

UPSTREAMS = [Upstream, AnthropicUpstream, GeminiUpstream]

COMPLETION = (
    b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":1}}'
)


class CountingServer:
    """Says hello to whatever is posted, sends others elsewhere, and counts the connections they come by."""

    def __init__(self, elsewhere: str = "http://127.0.0.1/") -> None:
        self.connections = 0
        self._elsewhere = elsewhere
        self.requests: list[str] = []
        self.port = 0

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["CountingServer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, *headers = head.decode().split("\r\n")
                self.requests.append(method.split()[0])
                length = sum(int(line[16:]) for line in headers if line.lower().startswith("content-length: "))
                await reader.readexactly(length)
                body = COMPLETION if length else b""
                status = "200 OK" if length else f"307 Temporary Redirect\r\nLocation: {self._elsewhere}"
                writer.write(
                    b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                    % (status.encode(), len(body), body)
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


@asynccontextmanager
async def provider_at(base_url: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[OpenAIProvider]:
    provider = opened(OpenAIProvider, base_url, Timeouts(), tls=tls)
    try:
        yield provider
    finally:
        await provider.aclose()


@pytest.mark.parametrize("kind", UPSTREAMS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_a_failure_and_is_not_followed(kind: type[Upstream], status: int) -> None:
    async with kind() as upstream, kind() as elsewhere:
        location = f"http://127.0.0.1:{elsewhere.port}{elsewhere.path}"
        upstream.default_reply = Reply(status=status, headers={"Location": location})
        route = ProviderRoute("host", kind.kind, upstream.base_url, api_key="secret", version=kind.version)
        provider = open_provider(route, Timeouts(), Path("unused.sock"))
        error = await failure_of(provider)
        await provider.aclose()
        assert (error.failure, error.http_status) == (Failure.PROVIDER, status)
        assert not elsewhere.requests


async def test_certificate_without_a_trusted_authority_is_refused_and_nothing_is_sent(tmp_path: Path) -> None:
    tls = server_context(make_certificate(tmp_path, "localhost"))
    async with CountingServer().serving(tls) as server, provider_at(f"https://localhost:{server.port}/v1") as provider:
        assert (await failure_of(provider)).failure is Failure.PROVIDER
        with pytest.raises(ProviderError):
            await provider.warm()
        assert server.requests == []


@pytest.mark.parametrize(
    ("host", "valid_for", "is_right"),
    [("localhost", timedelta(days=1), True), ("other.example", timedelta(days=1), False),
     ("localhost", timedelta(days=-1), False)],
    ids=["right", "of another host", "expired"],
)  # fmt: skip
async def test_certificate_must_be_that_of_the_host_and_valid(
    host: str, valid_for: timedelta, is_right: bool, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path, host, valid_for)
    async with (
        CountingServer().serving(server_context(certificate)) as server,
        provider_at(f"https://localhost:{server.port}/v1", trusting(certificate)) as provider,
    ):
        if is_right:
            assert await provider.warm() == ["localhost"]
            assert text_of(await pieces_of(provider)) == "Hello"
        else:
            assert (await failure_of(provider)).failure is Failure.PROVIDER
        assert server.requests == (["POST"] if is_right else [])


async def test_first_call_finds_the_connection_that_was_opened_to_warm_it() -> None:
    async with CountingServer().serving() as server, provider_at(f"http://127.0.0.1:{server.port}/v1") as provider:
        await provider.warm()
        assert text_of(await pieces_of(provider)) == "Hello"
        assert server.requests == ["POST"]
        assert server.connections == 1


async def test_provider_that_cannot_be_reached_to_warm_it_says_so() -> None:
    async with CountingServer().serving() as server:
        port = server.port
    async with provider_at(f"http://127.0.0.1:{port}/v1") as provider:
        with pytest.raises(ProviderError) as failure:
            await provider.warm()
    assert failure.value.what == "could not be reached"


async def test_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with CountingServer().serving() as proxy, CountingServer().serving() as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with provider_at(f"http://127.0.0.1:{server.port}/v1") as provider:
            assert text_of(await pieces_of(provider)) == "Hello"
        assert (proxy.connections, server.connections) == (0, 1)
