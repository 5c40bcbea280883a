"""Messages that a cookie carries to the next page."""

import pytest

from console.web.flash_messages import FlashMessage, flash_message_in
from tests.console.harness import COOKIE, ConsoleHarness


def test_a_notice_is_never_text_from_a_cookie(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    for forged in ("<b>hi</b>.1", "key-revoked.x", "key-revoked", "unknown.3"):
        answer = console.get("/", headers={"Cookie": f"{COOKIE}={session}; legato-notice={forged}"})
        assert 'role="status"' not in answer.text


def test_a_message_has_its_figure() -> None:
    assert flash_message_in("key-revoked.859") == FlashMessage(
        "good", "Revoked. It took effect on every edge 0.9 s after you clicked."
    )
    booked = flash_message_in("payment-booked.25000")
    assert booked is not None
    assert "$25.00 were added" in booked.text


@pytest.mark.usefixtures("french")
def test_a_message_is_in_the_language_of_the_visit() -> None:
    told = flash_message_in("account-changed.859")
    assert told is not None
    assert told.text == "En vigueur partout, après 0,9\N{NO-BREAK SPACE}s."
