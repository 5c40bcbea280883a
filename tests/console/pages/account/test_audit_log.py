"""The audit log of an account, for its owners."""

from services.chassis.access_tokens import AccountRole
from tests.console.auth_rows import OTHER_ACCOUNT_ID
from tests.console.harness import ConsoleHarness

PATH = "/settings/audit-log"
CHANGED = "Ada Lovelace changed the spend limit of the key “Nightly report” from $5.00 a day to $10.00 a day"


def test_the_log_says_what_changed_with_names_and_ids_behind_them(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    console.backends.calls.clear()
    page = console.get(PATH, session).text
    # The session, the credit, the events, the members and the keys to choose from.
    assert len(console.backends.calls) <= 5
    assert CHANGED in page
    assert "Requests a minute: from no limit of its own to 60" in page
    assert "Ada Lovelace changed the settings of the account" in page
    assert "<summary>IDs" in page
    assert ">key_0000000000000001<" in page
    french = console.get(PATH, session, {"Accept-Language": "fr"}).text
    assert (
        "Ada Lovelace a modifié la limite de dépenses de la clé «\u00a0Nightly report\u00a0» (avant\u00a0: " in french
    )


def test_the_log_is_filtered_by_kind_person_key_days_and_refusals(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    for query, is_listed in (
        ("action=spend_limits", True),
        ("action=key", False),
        ("action=nonsense", True),
        ("user=user_1", True),
        ("user=user_2", False),
        ("object=key_0000000000000001", True),
        ("object=key_0000000000000002", False),
        ("from=2020-01-01&to=2020-01-31", False),
        ("from=2020-01-01", True),
        ("refused=on", False),
    ):
        page = console.get(f"{PATH}?{query}", session).text
        assert (CHANGED in page) is is_listed, query
    assert "Nothing found" in console.get(f"{PATH}?user=user_2", session).text
    # What is chosen stays chosen, in the file too, and a former member can be chosen.
    page = console.get(f"{PATH}?action=key&user=user_9&refused=on", session).text
    assert '<option value="key" selected>Keys</option>' in page
    assert '<option value="user_9" selected>user_9</option>' in page
    assert f'href="{PATH}.csv?action=key&amp;user=user_9&amp;refused=on"' in page


def test_the_log_is_for_owners_and_of_their_account_alone(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.auth.fill_operator()
    session = console.auth.sign_in()
    page = console.get(f"{PATH}?account={OTHER_ACCOUNT_ID}", session).text
    assert CHANGED in page
    assert "Grace" not in page
    console.auth.set_role(AccountRole.MEMBER)
    session = console.auth.sign_in()
    for path in (PATH, f"{PATH}.csv"):
        refused = console.get(path, session)
        assert refused.status == 403
        assert "spend limit" not in refused.text
