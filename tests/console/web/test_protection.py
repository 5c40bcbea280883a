"""What no page of ours did is refused, and every response carries its headers."""

import pytest

from console.web.protection import Protection
from tests.console.auth import TOKEN_PATTERN
from tests.console.auth_rows import CODE
from tests.console.harness import COOKIE, ConsoleHarness

OURS = ["https://console.example.ca"]


@pytest.mark.parametrize("site", ["same-site", "cross-site", "none", ""])
def test_a_post_from_elsewhere_changes_nothing(console: ConsoleHarness, site: str) -> None:
    """All ports of a host are one site: a page on another port sends the cookie along and says `same-site`."""
    console.backends.fill()
    session = console.auth.sign_in()
    headers = {"Sec-Fetch-Site": site, "Origin": console.origin}
    answer = console.post("/keys/key_0000000000000001/revoke", {}, session, headers, is_ours=False)
    assert answer.status == 403
    assert console.backends.calls == []


@pytest.mark.parametrize(
    ("origin", "status"), [("", 403), ("null", 403), ("http://localhost:1", 403), ("https://evil.example", 403)]
)
def test_without_fetch_metadata_the_origin_decides(console: ConsoleHarness, origin: str, status: int) -> None:
    headers = {"Origin": origin} if origin else {}
    assert console.post("/sign-in", {"code": CODE}, headers=headers, is_ours=False).status == status


def test_our_own_origin_may_post_without_fetch_metadata(console: ConsoleHarness) -> None:
    answer = console.post("/sign-in", {"code": CODE}, headers={"Origin": console.origin}, is_ours=False)
    assert answer.status == 303


def test_a_name_that_is_not_ours_is_refused(console: ConsoleHarness) -> None:
    """An attacker's name may lead to this machine too; its pages would then count as ours."""
    session = console.auth.sign_in()
    answer = console.get("/keys", session, {"Host": "evil.example"})
    assert answer.status == 421
    assert console.backends.calls == []


def test_an_address_of_this_machine_leads_to_the_name(console: ConsoleHarness) -> None:
    answer = console.get("/sign-in?next=/keys", headers={"Host": f"127.0.0.1:{console.port}"})
    assert (answer.status, answer.headers["location"]) == (307, f"{console.origin}/sign-in?next=/keys")


@pytest.mark.parametrize("path", ["/", "/sign-in", "/nowhere", "/static/none.js", "/keys"])
def test_every_response_has_its_headers(console: ConsoleHarness, path: str) -> None:
    headers = console.get(path).headers
    policy = headers["content-security-policy"]
    for part in ("default-src 'none'", "script-src 'self'", "trusted-types 'none'", "frame-ancestors 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert "server" not in headers


def test_https_is_insisted_on_where_there_is_any() -> None:
    assert "strict-transport-security" in Protection(OURS, "https://api.example.ca/v1").headers
    assert "strict-transport-security" not in Protection(["http://localhost:8081"], "http://127.0.0.1:8080/v1").headers


def test_scripts_may_reach_the_api_and_no_other_host() -> None:
    policy = Protection(OURS, "https://api.example.ca/v1").headers["content-security-policy"]
    assert "connect-src 'self' https://api.example.ca;" in policy


def test_assets_are_kept_forever_under_the_hash_of_their_content(console: ConsoleHarness) -> None:
    page = console.get("/sign-in").text
    path = page.split('rel="stylesheet" href="')[1].split('"')[0]
    answer = console.get(path, headers={"Accept-Encoding": "gzip"})
    assert answer.status == 200
    assert "immutable" in answer.headers["cache-control"]
    assert "light-dark(" in answer.text


def test_a_session_that_was_signed_out_is_gone(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    answer = console.post("/sign-out", {}, session)
    assert answer.headers["clear-site-data"] == '"storage"'
    assert any(cookie.startswith(f'{COOKIE}=""') and "Max-Age=0" in cookie for cookie in answer.cookies)
    assert console.get("/keys", session).headers["location"] == "/sign-in?next=%2Fkeys"


def test_safari_gets_a_cookie_that_it_takes_without_https(console: ConsoleHarness) -> None:
    agent = "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_0) AppleWebKit/605.1.15 Version/18.0 Safari/605.1.15"
    [cookie] = console.post("/sign-in", {"code": CODE}, headers={"User-Agent": agent}).cookies
    assert cookie.startswith("legato=")
    assert "Secure" not in cookie


def test_a_form_that_is_too_large_is_refused(console: ConsoleHarness) -> None:
    assert console.post("/sign-in", {"code": "x" * 70_000}).status == 413
    assert console.post("/sign-in", {f"field{number}": "x" for number in range(300)}).status == 400


def test_names_are_escaped(console: ConsoleHarness) -> None:
    console.auth.add_key("<script>alert(1)</script>")
    text = console.get("/keys", console.auth.sign_in()).text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_no_secret_and_no_address_reaches_the_log(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.post("/sign-in", {"code": CODE})
    session = console.auth.sign_in()
    console.post("/first-key", {"form_id": "f"}, session)
    console.post("/settings/members/invite", {"email": "grace@example.ca", "role": "member"}, session)
    assert TOKEN_PATTERN.search(console.post("/playground/token", {}, session).text)
    console.get("/nowhere", session)
    console.backends.fail = {"KeyAdminService.ListKeys": RuntimeError("sk-legato-0123")}
    assert console.get("/keys", session).status == 500
    log = console.log_stream.getvalue()
    assert "rpc.failed" in log
    for secret in ("sk-legato-", "pt-legato-", session, CODE, "example.ca"):
        assert secret not in log
