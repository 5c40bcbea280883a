"""What the playground's page asks the console for: a token, and what a request cost."""

import json

import pytest

from services.chassis.access_tokens import AccountRole
from services.metering.credit.records import Hold
from services.rules.usage import Usage
from tests.console.auth import TOKEN_PATTERN
from tests.console.auth_rows import USER_ID
from tests.console.backends import not_answering
from tests.console.clock import NOW_US
from tests.console.harness import API_URL, ConsoleHarness
from tests.console.metering import ACCOUNT_ID, DOLLAR, charge_of, request_id, settled

USAGE = Usage(prompt_tokens=20, cached_tokens=8, completion_tokens=5)
SETTLED = settled(1, USAGE, NOW_US, "key_0000000000000001", class_id="forte")
RUNNING = Hold(request_id(1), ACCOUNT_ID, "key_0000000000000001", "forte", "held", 8_400, 1, NOW_US, 20)


def test_a_token_is_given_to_who_is_signed_in_for_their_account(console: ConsoleHarness) -> None:
    answer = console.post("/playground/token", {}, console.auth.sign_in())
    given = json.loads(answer.text)
    assert TOKEN_PATTERN.fullmatch(given["token"])
    assert 800 < given["valid_s"] <= 900
    [key] = console.auth.list_keys()
    assert key.playground_user_id == USER_ID
    assert answer.headers["cache-control"] == "no-store"


def test_a_token_is_not_given_to_another_site_or_without_a_session(console: ConsoleHarness) -> None:
    assert console.post("/playground/token", {}, console.auth.sign_in(), is_ours=False).status == 403
    ended = console.post("/playground/token", {}, "ended")
    assert (ended.status, json.loads(ended.text)["message"]) == (401, "This session has ended. Please sign in again.")
    assert console.auth.list_keys() == []


@pytest.mark.parametrize(
    ("hold", "expected"),
    [
        (RUNNING, {}),
        (SETTLED, {"usd": "0.0000164", "input_tokens": 20, "cached_tokens": 8, "output_tokens": 5}),
    ],
)
def test_the_cost_of_a_request_is_the_ledgers(console: ConsoleHarness, hold: Hold, expected: object) -> None:
    console.metering.write([charge_of(hold)] if hold is SETTLED else [], [hold])
    answer = console.post("/playground/cost", {"request_id": request_id(1)}, console.auth.sign_in())
    assert json.loads(answer.text) == expected
    assert console.backends.requests[-1].account_id == ACCOUNT_ID


def test_an_unknown_request_has_no_cost(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    assert console.post("/playground/cost", {"request_id": request_id(2)}, session).status == 404
    assert console.post("/playground/cost", {"request_id": "../x"}, session).status == 400


def test_viewers_see_a_program_and_no_playground(console: ConsoleHarness) -> None:
    console.auth.set_role(AccountRole.VIEWER)
    text = console.get("/playground", console.auth.sign_in()).text
    assert "Your role has no playground" in text
    assert "data-playground" not in text
    assert f"{API_URL}/chat/completions" in text


def test_the_page_is_there_with_no_credit_and_while_services_do_not_answer(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    console.metering.book(-5 * DOLLAR)
    assert "402 insufficient_quota" in console.get("/playground", session).text
    console.backends.fail = {
        "StatementService.ListPrices": not_answering(),
        "MeteringService.GetBalance": not_answering(),
    }
    text = console.get("/playground", session).text
    assert '<option value="fortissimo">' in text


def test_a_role_that_was_taken_gets_no_token(console: ConsoleHarness) -> None:
    console.auth.set_role(AccountRole.VIEWER)
    assert console.post("/playground/token", {}, console.auth.sign_in()).status == 403


@pytest.mark.parametrize(
    ("bundled", "said"),
    [
        (set(), None),
        ({"mezzo"}, "No provider is connected to mezzo:"),
        ({"mezzo", "forte", "fortissimo"}, "every class is answered by the small model"),
    ],
)
def test_the_page_says_that_the_bundled_model_is_tiny(
    console: ConsoleHarness, bundled: set[str], said: str | None
) -> None:
    console.router.bundle(*bundled)
    page = console.get("/playground", console.auth.sign_in()).text
    assert ("A tiny model answers here" in page) is (said is not None)
    assert (said or "") in page


def test_the_playground_is_there_without_the_router(console: ConsoleHarness) -> None:
    console.backends.fail = {"RouterService.ListModels": not_answering()}
    answer = console.get("/playground", console.auth.sign_in())
    assert (answer.status, "A tiny model" in answer.text) == (200, False)
