"""Users, as operators see them."""

from tests.console.auth import CODE_PATTERN, only_match
from tests.console.harness import ConsoleHarness


def test_a_new_users_link_is_shown_once_and_never_compressed(console: ConsoleHarness, session: str) -> None:
    made = console.post("/operator/users", {"name": "Mary"}, session)
    answer = console.follow(made, session, {"Accept-Encoding": "gzip"})
    code = only_match(CODE_PATTERN, answer.text)
    assert f"/sign-in#{code}" in answer.text
    assert "content-encoding" not in answer.headers
    assert code not in console.get("/operator/users", session).text
    assert code not in console.log_stream.getvalue()


def test_a_link_for_an_owner_leads_to_the_console_for_owners(console: ConsoleHarness, session: str) -> None:
    object.__setattr__(console.console, "public_origin", "https://console.example.ca")
    try:
        made = console.follow(console.post("/operator/users/user_2/sign-in-link", session=session), session)
        assert f"https://console.example.ca/sign-in#{only_match(CODE_PATTERN, made.text)}" in made.text
        own = console.follow(console.post("/operator/users/user_1/sign-in-link", session=session), session)
        assert f"{console.origin}/sign-in#{only_match(CODE_PATTERN, own.text)}" in own.text
    finally:
        object.__setattr__(console.console, "public_origin", "")


def test_a_user_whose_address_is_taken_is_not_added(console: ConsoleHarness, session: str) -> None:
    answer = console.post("/operator/users", {"name": "Ada", "email": "ada@example.ca"}, session)
    assert answer.status == 400
    assert "already" in answer.text
    assert 'value="ada@example.ca"' in answer.text


def test_the_last_operator_is_told_to_stay(console: ConsoleHarness, session: str) -> None:
    answer = console.post("/operator/users/user_1/operator", {"is_operator": "no"}, session)
    assert answer.status == 400
    assert "The last operator stays" in answer.text


def test_an_unknown_user_is_not_found(console: ConsoleHarness, session: str) -> None:
    assert console.get("/operator/users/user_unknown", session).status == 404
