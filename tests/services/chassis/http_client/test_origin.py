"""The addresses of servers, and the heads of requests to them."""

import pytest

from services.chassis.http_client.origin import Origin, RequestHead, has_host, read_url


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        (Origin("example.org", 80), "example.org"),
        (Origin("example.org", 8080), "example.org:8080"),
        (Origin("::1", 8080), "[::1]:8080"),
        (Origin("bücher.example", 80), "xn--bcher-kva.example"),
    ],
)
def test_server_is_named_as_its_address_says(origin: Origin, name: str) -> None:
    assert origin.name == name


@pytest.mark.parametrize(
    "url", ["http://", "https://:443/v1", "http://host:port/", "http://host:70000/", "http://[::1/"]
)
def test_address_that_leads_nowhere_is_known_as_such(url: str) -> None:
    assert not has_host(url)
    assert has_host("https://host.example:8443/v1")


def test_query_is_a_part_of_the_path() -> None:
    for url, path in (
        ("http://host.example", ""),
        ("http://host.example/v1/", "/v1/"),
        ("http://host.example/v1?version=7&a=%2F", "/v1?version=7&a=%2F"),
        ("http://host.example?version=7", "/?version=7"),
    ):
        assert read_url(url)[1] == path


def test_nothing_in_a_header_or_a_path_begins_another_line() -> None:
    origin = Origin("example.org", 80)
    with pytest.raises(ValueError, match="one line"):
        RequestHead(origin, {"Authorization": "Bearer key\r\nHost: elsewhere"})
    head = RequestHead(origin, {}).for_body("/v1/models/a b\r\nHost: elsewhere:generate?alt=sse", b"")
    assert head.startswith(b"POST /v1/models/a%20b%0D%0AHost:%20elsewhere:generate?alt=sse HTTP/1.1\r\n")
