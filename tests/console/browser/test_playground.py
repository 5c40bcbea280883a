"""The playground in a real browser, with an API that answers as it is told."""

import json
import subprocess
import sys
from typing import Any

from playwright.sync_api import Page, Route, expect

from console.pages.account.playground import FIRST_SLICE_TOKENS, UNSEEN_PROMPT_TOKENS
from console.web.assets import Assets
from edge.billing import hold, prompt_estimate
from services.metering.ledger.prices import Usage
from tests.console.auth import TOKEN_PATTERN
from tests.console.browser.axe import assert_accessible
from tests.console.browser.conftest import PATIENCE_MS, OpenPage
from tests.console.clock import NOW_US
from tests.console.harness import API_URL, ConsoleHarness
from tests.console.metering import charge_of, request_id, settled

expect.set_options(timeout=PATIENCE_MS)
CORS = {
    "access-control-allow-origin": "*",
    "access-control-expose-headers": "x-request-id, retry-after",
    "access-control-allow-headers": "authorization, content-type",
    "x-request-id": request_id(1),
}
CALLED = {"name": "get_weather", "arguments": '{"city":"Laval"}'}
CALL = {"index": 0, "id": "call_1", "type": "function", "function": CALLED}


class Api:
    """Answers the page's requests, one after the other; keeps what it was sent."""

    def __init__(self, page: Page, console: ConsoleHarness) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.bodies: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        page.route(f"{API_URL}/**", self._answer)
        hold = settled(
            1, Usage(prompt_tokens=20, completion_tokens=5), NOW_US, "key_0000000000000001", class_id="forte"
        )
        console.metering.write([charge_of(hold)], [hold])

    def stream(self, *deltas: Any, finish_reason: str = "stop", error: Any = None) -> None:
        chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        if error is None:
            chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]})
            chunks.append({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 5}})
        else:
            chunks.append({"error": error})
        self.answers.append((200, "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"))

    def refuse(self, status: int, kind: str, code: str, message: str) -> None:
        self.answers.append((status, json.dumps({"error": {"message": message, "type": kind, "code": code}})))

    def _answer(self, route: Route) -> None:
        if route.request.method == "OPTIONS":
            route.fulfill(status=204, headers=CORS)
            return
        self.bodies.append(json.loads(route.request.post_data or "{}"))
        self.tokens.append(route.request.headers["authorization"])
        if not self.answers:
            route.abort()
            return
        status, body = self.answers.pop(0)
        kind = "text/event-stream" if status == 200 else "application/json"
        route.fulfill(status=status, headers={**CORS, "content-type": kind, "retry-after": "7"}, body=body)


def send(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def test_the_focus_follows_send_and_stop(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/playground")
    page.route(f"{API_URL}/**", lambda route: None)
    page.get_by_label("Your message").fill("Hello")
    with page.expect_request(f"{API_URL}/**"):
        page.get_by_role("button", name="Send", exact=True).press("Enter")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.get_by_role("button", name="Stop").press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(page.get_by_label("Your message")).to_be_focused()


def test_a_conversation_is_text_whatever_the_model_says_and_is_accessible(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    page = open_page("/playground")
    api = Api(page, console)
    page.get_by_label("System text").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Token limit").fill("100")
    page.get_by_label("Answer as").select_option("json_object")
    hostile = "<img src=x onerror=alert(1)>\n```html\n<script>alert(2)</script>\n```\n[x](javascript:alert(3))"
    api.stream({"role": "assistant"}, {"content": hostile[:30]}, {"content": hostile[30:]})
    send(page, "Hello")
    turns = page.get_by_role("log")
    expect(turns.locator("pre code")).to_have_text("<script>alert(2)</script>")
    expect(turns).to_contain_text("<img src=x onerror=alert(1)>")
    assert turns.locator("img, script, a[href^=javascript]").count() == 0
    expect(turns).to_contain_text("Cost $0.00002")
    assert api.bodies[0] == {
        "model": "auto",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "temperature": 0.5,
        "max_tokens": 100,
        "response_format": {"type": "json_object"},
        "stream": True,
    }
    [token] = api.tokens
    assert TOKEN_PATTERN.fullmatch(token.removeprefix("Bearer "))
    api.stream({"tool_calls": [CALL]}, finish_reason="tool_calls")
    page.locator("summary", has_text="Tools").click()
    page.get_by_role("button", name="Insert an example").click()
    send(page, "And the weather?")
    page.get_by_label("Your result of get_weather").fill("-4")
    api.refuse(402, "insufficient_quota", "insufficient_quota", "The credit is used up.")
    page.get_by_role("button", name="Send the results").click()
    error = page.locator("[data-part=error]")
    expect(error).to_contain_text("This account has no credit left")
    expect(error).to_contain_text(f"402 · insufficient_quota · Request {request_id(1)}")
    expect(error).to_contain_text("Try again in 7 s.")
    assert api.bodies[2]["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "-4"}
    # The results are still there, and can be sent again.
    expect(page.get_by_label("Your result of get_weather")).to_have_value("-4")
    api.stream({"content": "Cold."})
    page.get_by_role("button", name="Send the results").click()
    expect(turns).to_contain_text("Cold.")
    # axe cannot judge the colours of what is scrolled out of its box.
    page.evaluate("document.querySelectorAll('.turns, pre').forEach((each) => { each.style.maxHeight = 'none'; })")
    assert_accessible(page)
    page.get_by_role("button", name="Clear").click()
    expect(turns).to_contain_text("No messages yet")


def test_a_token_that_was_ended_is_replaced_once_and_errors_in_a_stream_are_shown(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    page = open_page("/playground")
    api = Api(page, console)
    api.refuse(401, "authentication_error", "invalid_api_key", "The API key is not valid.")
    api.stream(
        {"content": "Par"}, error={"message": "The model failed.", "type": "api_error", "code": "upstream_error"}
    )
    send(page, "Hello")
    expect(page.locator("[data-part=error]")).to_contain_text("The model's provider failed")
    expect(page.get_by_role("log")).to_contain_text("The answer was cut off. You are charged for what was delivered.")
    assert len(set(api.tokens)) == 2
    # Nothing answers: the page says what to allow, and gives the message back.
    send(page, "Is anybody there?")
    expect(page.locator("[data-part=error]")).to_contain_text("LEGATO_CORS_ORIGINS")
    expect(page.get_by_label("Your message")).to_have_value("Is anybody there?")
    console.auth.end_sessions()
    api.refuse(401, "authentication_error", "invalid_api_key", "The API key is not valid.")
    send(page, "Once more")
    expect(page.locator("[data-part=error]")).to_contain_text("You are signed out")


def test_the_conversation_as_code_is_a_program_that_sends_it(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/playground")
    Api(page, console)
    said = 'It\'s "quoted" $HOME `x` \\ é \n second line'
    page.locator("summary", has_text="Tools").click()
    page.get_by_role("button", name="Insert an example").click()
    page.get_by_label("Your message").fill(said)
    curl, python = (page.locator(f"#snippet-{language}").text_content() or "" for language in ("curl", "python"))
    printed = subprocess.run(
        ["bash", "-c", 'curl() { printf %s "${@: -1}"; }\n' + curl], capture_output=True, text=True, check=True
    )
    sent = json.loads(printed.stdout)
    assert sent["messages"] == [{"role": "user", "content": said}]
    assert sent["tools"][0]["function"]["name"] == "get_weather"
    assignment = python[python.index("request = ") : python.index("\nanswer")]
    shown = subprocess.run(
        [sys.executable, "-c", f"import json\n{assignment}\nprint(json.dumps(request))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout) == sent


def test_the_highest_cost_stands_beside_the_credit_before_anything_is_sent(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    page = open_page("/playground")
    api, estimate = Api(page, console), page.locator("[data-part=estimate]")
    expect(estimate).to_be_hidden()
    page.get_by_label("Your message").fill("x" * 4_000)
    # 4,035 bytes of messages and no tools: 1,008 tokens, and 128 that the service adds, at the price of forte.
    expect(estimate).to_contain_text("Holds about $0.0088 at first: a prompt of about 1,136 tokens, 4,096 of answer")
    page.get_by_label("Token limit").fill("1000")
    expect(estimate).to_contain_text("Costs at most about $0.0026")
    expect(estimate).to_contain_text("Free credit $5.00.")
    page.get_by_label("Class").select_option("fortissimo")
    page.get_by_label("Token limit").fill("1000000")
    expect(estimate).to_contain_text("more than your free credit of $5.00")
    api.stream({"content": "Hi."})
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("log")).to_contain_text("Cost $0.00002")
    expect(estimate).to_be_hidden()
    assert (UNSEEN_PROMPT_TOKENS, FIRST_SLICE_TOKENS) == (
        prompt_estimate.UNSEEN_PROMPT_TOKENS,
        hold.FIRST_SLICE_TOKENS,
    )


def test_without_javascript_the_page_says_so_and_shows_a_program(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/playground", java_script_enabled=False)
    expect(page.get_by_text("The playground needs JavaScript")).to_be_visible()
    expect(page.get_by_label("Your message")).to_be_hidden()
    expect(page.locator("#snippet-curl")).to_contain_text("/chat/completions")


def test_nothing_moves_when_the_script_arrives(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("about:blank", phone=True)
    held: list[Route] = []
    script = f"**{Assets().path_of('playground.js')}"

    def hold(route: Route) -> None:
        held.append(route)

    page.route(script, hold)
    with page.expect_request(script):
        page.goto("/playground", wait_until="commit")
    program, message = page.locator("#snippet-curl"), page.get_by_label("Your message")
    expect(program).to_contain_text("/chat/completions")
    expect(message).to_be_hidden()
    before = program.bounding_box()
    held.pop().continue_()
    expect(message).to_be_visible()
    after = program.bounding_box()
    assert before is not None
    assert after is not None
    assert after["y"] == before["y"]


def test_the_script_is_small() -> None:
    assets = Assets()
    asset = assets.find(assets.path_of("playground.js"))
    assert asset is not None
    assert len(asset.compressed) <= 6_000
