"""The playground in a real browser, with an API that answers as it is told."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Dialog, Page, Request, Route, expect

from console.pages.account.playground import FIRST_SLICE_TOKENS, UNSEEN_PROMPT_TOKENS
from console.web.assets import Assets
from edge.billing import hold, prompt_estimate
from tests.console.auth import TOKEN_PATTERN
from tests.console.browser.api import Api
from tests.console.browser.axe import assert_accessible
from tests.console.browser.conftest import PATIENCE_MS, OpenPage
from tests.console.browser.playground.actions import send, show_all
from tests.console.harness import API_URL, ConsoleHarness
from tests.console.metering import request_id

expect.set_options(timeout=PATIENCE_MS)
CALLED = {"name": "get_weather", "arguments": '{"city":"Laval"}'}
CALL = {"index": 0, "id": "call_1", "type": "function", "function": CALLED}


def is_for(model: str) -> Callable[[Request], bool]:
    return lambda request: f'"model":"{model}"' in (request.post_data or "")


def test_the_focus_follows_send_and_stop(page: Page) -> None:
    page.route(f"{API_URL}/**", lambda route: None)
    page.get_by_label("Your message").fill("Hello")
    with page.expect_request(f"{API_URL}/**"):
        page.get_by_role("button", name="Send", exact=True).press("Enter")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.get_by_role("button", name="Stop").press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(page.get_by_label("Your message")).to_be_focused()


def test_a_conversation_with_tools_shows_each_result_once_and_is_accessible(page: Page, api: Api) -> None:
    page.get_by_label("System text").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Token limit").fill("100")
    page.get_by_label("Answer as").select_option("json_object")
    api.stream({"role": "assistant"}, "Hel", "lo.")
    send(page, "Hello")
    turns = page.get_by_role("log")
    expect(turns).to_contain_text("Cost $0.00002")
    expect(turns).to_contain_text("20 tokens in, 5 out")
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
    page.get_by_label("Your result of get_weather").fill("-4 degrees")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    api.refuse(402, "insufficient_quota", "insufficient_quota", "The credit is used up.")
    page.get_by_role("button", name="Send the results").click()
    error = page.locator("[data-part=error]")
    expect(error).to_contain_text("This account has no credit left")
    expect(error).to_contain_text(f"402 · insufficient_quota · Request {request_id(3)}")
    expect(error).to_contain_text("Try again in 7 seconds.")
    assert api.bodies[2]["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "-4 degrees"}
    # The results are still there, and can be sent again.
    expect(page.get_by_label("Your result of get_weather")).to_have_value("-4 degrees")
    show_all(page)
    assert_accessible(page)
    api.stream("Cold.")
    page.get_by_role("button", name="Send the results").click()
    expect(turns).to_contain_text("Cold.")
    expect(page.get_by_label("Your result of get_weather")).to_be_hidden()
    assert turns.inner_text().count("-4 degrees") == 1
    # Asked again, with the same result.
    api.stream("Very cold.")
    page.get_by_role("button", name="Retry").click()
    expect(turns).to_contain_text("Very cold.")
    assert api.bodies[4]["messages"] == api.bodies[3]["messages"]
    assert turns.inner_text().count("-4 degrees") == 1
    page.get_by_role("button", name="Clear").click()
    expect(turns).to_contain_text("No messages yet")


def test_a_message_is_written_anew_and_an_answer_asked_for_again(page: Page, api: Api) -> None:
    turns, retry = page.get_by_role("log"), page.get_by_role("button", name="Retry")
    for answer in ("One.", "Two."):
        api.stream(answer)
        send(page, f"Say {answer}")
        expect(turns.locator(".turn.assistant").last).to_contain_text(answer)
        expect(retry).to_be_visible()
    assert api.said(1) == ["Say One.", "One.", "Say Two."]
    api.stream("Two again.")
    retry.click()
    expect(turns).to_contain_text("Two again.")
    assert api.said(2) == api.said(1)
    expect(turns.locator(".turn")).to_have_count(4)
    # The program is the request that the answer came from.
    program = page.locator("#snippet-curl").text_content() or ""
    assert "Say Two." in program
    assert "Two again." not in program
    # What follows a message that is written anew is gone once it is sent, and is back if nothing comes.
    turns.get_by_role("button", name="Edit").first.click()
    again = page.get_by_label("Your message, again")
    expect(again).to_be_focused()
    again.press("Escape")
    expect(turns.get_by_role("button", name="Edit").first).to_be_focused()
    page.keyboard.press("Enter")
    again.fill("Say three.")
    expect(page.locator("[data-part=estimate]")).to_contain_text("Holds about")
    expect(page.locator("#snippet-curl")).to_contain_text("Say three.")
    show_all(page)
    assert_accessible(page)
    api.refuse(429, "rate_limit_error", "saturated", "Busy.")
    again.press("Enter")
    expect(page.locator("[data-part=error]")).to_contain_text("All models of this class are busy")
    expect(turns.locator(".turn")).to_have_count(4)
    expect(again).to_have_value("Say three.")
    api.stream("Three.")
    again.press("Enter")
    expect(turns).to_contain_text("Three.")
    assert api.said(4) == ["Say three."]
    expect(turns.locator(".turn")).to_have_count(2)
    api.stream("Four.")
    send(page, "Say four.")
    expect(turns).to_contain_text("Four.")
    assert api.said(5) == ["Say three.", "Three.", "Say four."]


def test_two_classes_answer_side_by_side_each_with_its_own_history_and_cost(page: Page, api: Api) -> None:
    turns, estimate = page.get_by_role("log"), page.locator("[data-part=estimate]")
    api.stream("One.")
    send(page, "Say one.")
    expect(turns).to_contain_text("Cost $0.00002")
    page.get_by_label("Class", exact=True).select_option("mezzo")
    page.get_by_label("Side by side with").select_option("forte")
    page.get_by_label("Token limit").fill("1000")
    page.get_by_label("Your message").fill("Say two.")
    expect(estimate).to_contain_text(re.compile(r"Both together cost at most about \$\S+: mezzo \$\S+, forte \$\S+\."))
    both, *each = (float(amount) for amount in re.findall(r"\$(\d+\.\d+)", estimate.inner_text())[:3])
    assert both == pytest.approx(sum(each), rel=0.1)
    api.stream("Two of mezzo.", model="mezzo")
    api.stream("Two of forte.", model="forte")
    page.keyboard.press("Enter")
    expect(turns.get_by_role("heading", name="Answer of mezzo")).to_be_visible()
    expect(turns.get_by_role("heading", name="Answer of forte")).to_be_visible()
    expect(page.locator("[data-part=status]")).to_have_text("Both answers are complete.")
    # One of them is the second request that was charged; nothing is charged for the third.
    expect(turns.locator(".exchange").last.get_by_text(re.compile(r"^Cost \$"))).to_have_count(1)
    expect(turns.get_by_text("Not charged")).to_have_count(1)
    expect(turns.get_by_text(re.compile("^First token after"))).to_have_count(3)
    show_all(page)
    assert_accessible(page)
    api.stream("Three of mezzo.", model="mezzo")
    api.refuse(429, "rate_limit_error", "saturated", "Busy.", model="forte")
    send(page, "Say three.")
    expect(page.locator("[data-part=error]")).to_contain_text("Answer of forte")
    expect(turns).to_contain_text("Three of mezzo.")
    asked = {body["model"]: place for place, body in enumerate(api.bodies) if place > 2}
    assert api.said(asked["mezzo"]) == ["Say one.", "One.", "Say two.", "Two of mezzo.", "Say three."]
    assert api.said(asked["forte"]) == ["Say one.", "One.", "Say two.", "Two of forte.", "Say three."]
    # Without the other class, the first goes on.
    page.get_by_label("Side by side with").select_option("")
    api.stream("Four.")
    send(page, "Say four.")
    expect(turns).to_contain_text("Four.")
    assert len(api.bodies) == 6
    assert api.said(5)[-3:] == ["Say three.", "Three of mezzo.", "Say four."]


def test_two_classes_call_tools_and_stop_stops_both(page: Page, api: Api) -> None:
    turns = page.get_by_role("log")
    page.locator("summary", has_text="Tools").click()
    page.get_by_role("button", name="Insert an example").click()
    page.get_by_label("Class", exact=True).select_option("mezzo")
    page.get_by_label("Side by side with").select_option("forte")
    api.stream("No tool.", model="mezzo")
    api.stream({"tool_calls": [CALL]}, finish_reason="tool_calls", model="forte")
    send(page, "The weather?")
    page.get_by_label("Your result of get_weather for forte").fill("-4 degrees")
    api.stream("Cold.", model="forte")
    page.get_by_role("button", name="Send the results").click()
    expect(turns).to_contain_text("Cold.")
    # Only the class that called was asked.
    assert [body["model"] for body in api.bodies[2:]] == ["forte"]
    assert [each["role"] for each in api.bodies[2]["messages"]] == ["user", "assistant", "tool"]
    held: list[Route] = []

    def hold_back(route: Route) -> None:
        held.append(route)

    page.route(f"{API_URL}/**", hold_back)
    mezzo, forte = (page.expect_request(is_for(model)) for model in ("mezzo", "forte"))
    with mezzo, forte:
        send(page, "Go on.")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(page.get_by_label("Your message")).to_have_value("Go on.")
    asked = [json.loads(route.request.post_data or "{}") for route in held]
    assert [[each["role"] for each in body["messages"]] for body in asked if body["model"] == "mezzo"] == [
        ["user", "assistant", "user"]
    ]


def test_the_choice_of_a_tool_is_sent(page: Page, api: Api) -> None:
    page.locator("summary", has_text="Tools").click()
    choice = page.get_by_label("Choice of the tool")
    page.get_by_role("button", name="Insert an example").click()
    sent: list[Any] = []
    for chosen in ("", "none", "required", "function get_weather"):
        choice.select_option(chosen)
        api.stream("Done.")
        send(page, "Go on.")
        expect(page.get_by_role("button", name="Retry")).to_be_visible()
        sent.append(api.bodies[-1].get("tool_choice"))
        page.get_by_role("button", name="Clear").click()
    assert sent == [None, "none", "required", {"type": "function", "function": {"name": "get_weather"}}]
    # A function that is no longer there is not chosen; without tools there is no choice.
    page.get_by_label("Tools, as JSON").fill("[]")
    expect(choice).to_have_value("")
    choice.select_option("required")
    api.stream("Done.")
    send(page, "Go on.")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    assert "tool_choice" not in api.bodies[-1]


def test_leaving_warns_while_there_is_a_conversation_or_a_draft(page: Page, api: Api) -> None:
    warned: list[str] = []

    def stay(dialog: Dialog) -> None:
        warned.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay)
    page.get_by_label("Your message").fill("A draft")
    usage = page.get_by_role("link", name="Usage", exact=True)
    with page.expect_event("dialog"):
        usage.click()
    page.get_by_label("Your message").fill("")
    api.stream("Hello.")
    send(page, "Hello")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    with page.expect_event("dialog"):
        usage.click()
    assert warned == ["beforeunload", "beforeunload"]
    assert page.url.endswith("/playground")
    page.get_by_role("button", name="Clear").click()
    usage.click()
    page.wait_for_url("**/usage")
    assert len(warned) == 2
    assert page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]


def test_a_token_that_was_ended_is_replaced_once_and_errors_in_a_stream_are_shown(
    console: ConsoleHarness, page: Page, api: Api
) -> None:
    api.refuse(401, "authentication_error", "invalid_api_key", "The API key is not valid.")
    api.stream("Par", error={"message": "The model failed.", "type": "api_error", "code": "upstream_error"})
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


def test_the_conversation_as_code_is_a_program_that_sends_it(page: Page, api: Api) -> None:
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


def test_the_highest_cost_stands_beside_the_credit_before_anything_is_sent(page: Page, api: Api) -> None:
    estimate = page.locator("[data-part=estimate]")
    expect(estimate).to_be_hidden()
    page.get_by_label("Your message").fill("x" * 4_000)
    # 4,035 bytes of messages and no tools: 1,008 tokens, and 128 that the service adds, at the price of forte.
    expect(estimate).to_contain_text("Holds about $0.0088 at first: a prompt of about 1,136 tokens, 4,096 of answer")
    page.get_by_label("Token limit").fill("1000")
    expect(estimate).to_contain_text("Costs at most about $0.0026")
    expect(estimate).to_contain_text("Free credit $5.00.")
    page.get_by_label("Class", exact=True).select_option("fortissimo")
    page.get_by_label("Token limit").fill("1000000")
    expect(estimate).to_contain_text("more than your free credit of $5.00")
    api.stream("Hi.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("log")).to_contain_text("Cost $0.00002")
    expect(estimate).to_be_hidden()
    assert (UNSEEN_PROMPT_TOKENS, FIRST_SLICE_TOKENS) == (
        prompt_estimate.UNSEEN_PROMPT_TOKENS,
        hold.FIRST_SLICE_TOKENS,
    )


def test_in_french_the_script_speaks_french(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/playground", locale="fr-CA")
    api = Api(page)
    page.locator("#message").fill("Bonjour")
    expect(page.locator("[data-part=estimate]")).to_contain_text(re.compile(r"0,\d+\s\$"))
    api.stream("Salut.")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Réponse")).to_be_visible()
    expect(page.get_by_role("button", name="Réessayer")).to_be_visible()


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
