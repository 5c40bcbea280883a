"""The playground in a browser with real services behind it, from the link that `legato up` prints to sign-out."""

import http.client
import json
import os
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Request, expect, sync_playwright

from tests.support.servers.chromium import find_chromium
from tests.support.service import NEVER_SATURATED, ROUTES, UpstreamThread, make_data_folder
from tests.support.up import Up
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)
QUESTION = "How do I reverse a string, quietly-unique-7f3a?"
ANSWER = ["Like this:\n\n```python\nreverse", "d(text)\n```\n\n<b>No markup</b>, ", "just text."]
CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city":"Laval"}'},
}


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    shell = find_chromium()
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shell.path, env={**os.environ, **shell.environ}, args=["--no-sandbox"], timeout=PATIENCE_MS
        )
        context = browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        yield context.new_page()
        browser.close()


class Playground:
    """What a person sees and does."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.turns = page.get_by_role("log")
        self.status = page.locator("[data-part=status]")
        self.error = page.locator("[data-part=error]")

    def send(self, text: str) -> None:
        self.page.get_by_label("Your message").fill(text)
        self.page.keyboard.press("Enter")

    def costs(self, count: int) -> list[Decimal]:
        """Waits until so many answers show what they cost."""
        shown = self.turns.get_by_text(re.compile(r"^Cost \$"))
        expect(shown).to_have_count(count)
        return [Decimal(text.removeprefix("Cost $")) for text in shown.all_text_contents()]


def status_with(token: str, base_url: str) -> int:
    address = urlsplit(base_url)
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    try:
        connection.request("GET", f"{address.path}/models", headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_new_user_chats_stops_uses_a_tool_meets_an_error_and_signs_out(socket_folder: Path, page: Page) -> None:
    data = make_data_folder(socket_folder / "data")
    with UpstreamThread() as upstream:
        routes = socket_folder / "routes.toml"
        routes.write_text(ROUTES.format(base_url=upstream.base_url))
        # No other page may call the API: the console's may.
        environ = {**NEVER_SATURATED, "LEGATO_CORS_ORIGINS": ""}
        up = Up(
            data, "--welcome", "--console-port", "0", "--json", "--routes", str(routes), environ=environ, is_forked=True
        )
        try:
            base_url = json.loads(up.line())["ready"]
            chat_in_the_playground(up, upstream, page, base_url, json.loads(up.line())["console"])
        finally:
            up.stop()
            up.close()
    logs = "".join(path.read_text() for path in (data / "logs").iterdir())
    for secret in ("pt-legato-", "sk-legato-", "quietly-unique"):
        assert secret not in logs


def chat_in_the_playground(up: Up, upstream: Upstream, page: Page, base_url: str, link: str) -> None:
    errors: list[str] = []
    tokens: list[str] = []
    to_console: list[str] = []
    origin = link.partition("/sign-in")[0]

    def record(request: Request) -> None:
        if request.url.startswith(base_url):
            tokens.append(request.headers.get("authorization", "").removeprefix("Bearer "))
        else:
            assert request.url.startswith(origin)
            to_console.append(request.post_data or "")

    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(link)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("link", name="Try it in the playground").click()
    page.on("request", record)
    playground = Playground(page)

    # It streams: Markdown as elements, and what it cost is what the ledger has charged.
    upstream.replies.append(Reply(contents=ANSWER))
    playground.send(QUESTION)
    expect(playground.turns.locator("pre code")).to_have_text("reversed(text)")
    expect(playground.turns).to_contain_text("<b>No markup</b>, just text.")
    [first] = playground.costs(1)
    account_id = up.json("accounts", "list")[0]["account_id"]
    assert first == spent(up, account_id) > 0
    expect(page.locator("#snippet-curl")).to_contain_text("quietly-unique")

    # Stop ends the model's answer, and what was delivered is charged.
    upstream.replies.append(Reply(contents=["One, ", "two, ", "three"], stall_after=4))
    playground.send("Count.")
    expect(playground.turns).to_contain_text("One, two, three")
    page.get_by_role("button", name="Stop").click()
    expect(playground.status).to_contain_text("charged for what was delivered")
    costs = playground.costs(2)
    assert costs[1] > 0
    assert sum(costs) == spent(up, account_id)
    wait_until(lambda: upstream.requests[1].aborted_at_s is not None)

    # A tool is called, and its result is the user's.
    page.locator("summary", has_text="Tools").click()
    page.get_by_label("Tools, as JSON").fill("[")
    expect(page.locator("#tools-state")).to_contain_text("This is not JSON")
    page.get_by_role("button", name="Insert an example").click()
    upstream.replies.append(Reply(contents=[], tool_calls=[CALL], finish_reason="tool_calls"))
    playground.send("What is the weather in Laval?")
    page.get_by_label("Your result of get_weather").fill("-4 degrees")
    upstream.replies.append(Reply(contents=["Cold."]))
    page.get_by_role("button", name="Send the results").click()
    expect(playground.turns).to_contain_text("Cold.")
    said = json.loads(upstream.requests[3].body)["messages"]
    assert said[-1]["role"] == "tool"
    assert "-4 degrees" in json.dumps(said[-1])
    costs = playground.costs(4)
    assert sum(costs) == spent(up, account_id)

    # Two classes answer at once, and both are charged.
    page.get_by_label("Tools, as JSON").fill("")
    page.get_by_label("Class", exact=True).select_option("mezzo")
    page.get_by_label("Side by side with").select_option("forte")
    upstream.replies += [Reply(contents=["Here ", "it is."]), Reply(contents=["Here ", "it is."])]
    playground.send("Both of you.")
    expect(playground.status).to_have_text("Both answers are complete.")
    costs = playground.costs(6)
    assert min(costs[4:]) > 0
    assert costs[4] != costs[5]
    assert sum(costs) == spent(up, account_id)
    page.get_by_label("Side by side with").select_option("")

    # An error is shown as the API gives it, and nothing that was typed is lost.
    upstream.default_reply = Reply(status=400, body='{"error":{"message":"no","type":"invalid_request_error"}}')
    playground.send("This fails.")
    expect(playground.error).to_contain_text("request_not_supported")
    expect(page.get_by_label("Your message")).to_have_value("This fails.")
    assert sum(costs) == spent(up, account_id)

    # Signing out, in another tab, ends the answer and the token.
    upstream.replies.append(Reply(contents=["Still ", "here "] * 500, event_delay_s=0.2))
    playground.send("Go on for long.")
    expect(playground.turns).to_contain_text("Still here")
    assert status_with(tokens[-1], base_url) == 200
    other = page.context.new_page()
    other.goto(f"{origin}/keys")
    other.get_by_role("button", name="Sign out").click()
    expect(other.get_by_role("status")).to_contain_text("You are signed out")
    expect(playground.error).to_contain_text("revoked")
    wait_until(lambda: status_with(tokens[-1], base_url) == 401)
    playground.send("And now?")
    expect(playground.error).to_contain_text("You are signed out")

    assert all(token.startswith("pt-legato-") for token in tokens if token)
    assert not any("quietly-unique" in body for body in to_console)
    assert page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]
    assert errors == []


def spent(up: Up, account_id: str) -> Decimal:
    balance = up.json("credits", "balance", account_id)
    return Decimal(5) - Decimal(balance["balance_usd"])
