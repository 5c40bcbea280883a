import re
from decimal import Decimal

from services.auth.core.messages import SWITCHES
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness

QUESTION = "How long is the warranty of the Zephyr?"


def test_a_question_shows_notes_passages_tokens_and_price(console: ConsoleHarness) -> None:
    console.grounding.fill()
    answer = console.post("/preview", {"question": QUESTION, "class": "auto"}, console.auth.sign_in())
    assert answer.status == 200
    for shown in ("I live in Ottawa", "[1] Zephyr manual.pdf", "page 2", "five years", "The whole prompt"):
        assert shown in answer.text
    figures = re.findall(r'<data value="([\d.]+)">', answer.text)
    added, character, notes, passages, introduction, question, whole = map(Decimal, figures)
    assert notes > 0
    assert passages > 0
    assert added == notes + passages + introduction
    assert whole == added + character + question
    assert len(console.backends.calls_of_page) <= 4


def test_the_preview_asks_for_what_a_chat_of_the_account_may_use(console: ConsoleHarness) -> None:
    console.auth.change_account(search=False, memory=True, attachments=False)
    console.post("/preview", {"question": QUESTION, "class": "mezzo"}, console.auth.sign_in())
    [request] = [request for request in console.backends.requests if hasattr(request, "question")]
    assert (request.question, request.model, request.preferred_class) == (QUESTION, "mezzo", "forte")
    assert (request.search, request.memory, request.attachments) == (False, True, False)


def test_the_question_stands_in_no_address_and_no_log(console: ConsoleHarness) -> None:
    console.grounding.fill()
    session = console.auth.sign_in()
    answer = console.post("/preview", {"question": QUESTION}, session)
    assert 'method="post" action="/preview"' in answer.text
    assert "location" not in answer.headers
    assert not any("Zephyr" in cookie for cookie in answer.cookies)
    assert "Zephyr" not in console.log_stream.getvalue()
    # What an address has of a question is not in the form. The footer leads back to the address.
    assert "warranty</textarea>" not in console.get("/preview?question=warranty", session).text


def test_a_question_that_is_refused_is_shown_with_the_reason(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    answer = console.post("/preview", {"question": " "}, session)
    assert answer.status == 400
    assert "A question must have 1 to 32,000 characters." in answer.text
    console.backends.fail = {
        "GroundingAdminService.PreviewGrounding": LegatoError(Reason.MODEL_UNKNOWN, Sentence.verbatim("No such model."))
    }
    assert console.post("/preview", {"question": "x", "class": "gpt"}, session).status == 400


def test_without_metering_the_price_is_missing_and_the_rest_is_shown(console: ConsoleHarness) -> None:
    console.grounding.fill()
    console.backends.fail = {"StatementService.ListPrices": not_answering()}
    answer = console.post("/preview", {"question": QUESTION}, console.auth.sign_in())
    assert answer.status == 200
    assert "Prices cannot be shown right now" in answer.text
    assert "I live in Ottawa" in answer.text


def test_what_is_missing_says_why(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    assert "The account has no notes" in console.post("/preview", {"question": "x"}, session).text
    console.auth.change_account(**dict.fromkeys(SWITCHES, False))
    assert "Switched off for this account." in console.post("/preview", {"question": "x"}, session).text


def test_what_is_not_configured_is_told(console: ConsoleHarness) -> None:
    console.grounding.is_configured = False
    session = console.auth.sign_in()
    assert "Not configured on this service." in console.post("/preview", {"question": "x"}, session).text


def test_notes_have_as_many_tokens_on_all_pages(console: ConsoleHarness) -> None:
    console.grounding.fill()
    session = console.auth.sign_in()
    counts = r"(\d+) tokens"
    memory = console.get("/memory", session).text
    preview = console.post("/preview", {"question": QUESTION}, session).text
    notes = preview[preview.index("<h2>Notes</h2>") : preview.index("<h2>Passages of documents</h2>")]
    listed = [int(count) for count in re.findall(counts, notes)]
    assert len(listed) == 4
    assert sorted(listed) == sorted(int(count) for count in re.findall(counts, memory))[-4:]
    for page, row in (
        (memory, r'tokens-title">[^<]*</dt><dd><span class="figure">'),
        (preview, r'">Notes</th><td[^>]*>'),
    ):
        assert re.findall(row + r"(\d+)<", page) == [str(sum(listed))]
