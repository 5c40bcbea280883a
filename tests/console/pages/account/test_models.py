"""The models: prices, sizes, speed, and what chats cost."""

import re
from decimal import Decimal

import sqlalchemy as sa

from console.pages.account.models import CHATS, PURPOSES, ModelClass
from legato_protos.metering.v1 import metering_pb2
from legato_protos.router.v1 import router_pb2
from services.auth.core.records.accounts import ClassAllowance
from services.chassis.access_tokens import AccountRole
from services.chassis.money import format_usd
from services.rules.model_classes import CLASSES
from services.rules.usage import Usage
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness
from tests.console.metering import DOLLAR, PRICES


def rows(text: str) -> dict[str, list[str]]:
    """Returns the cells of the table of chats, by the title of the row."""
    body = text[text.index("What a chat costs, by class") :].partition("</table>")[0]
    found = {}
    for row in body.split("<tr>")[2:]:
        title = re.findall(r'<th scope="row">([^<]+)', row)[0]
        cells = re.findall(r'<td class="number">(.*?)</td>', row)
        found[title.replace("&#39;", "'")] = [re.sub(r"<[^>]+>", "", cell) for cell in cells]
    return found


def test_every_class_says_what_it_is_for() -> None:
    assert tuple(PURPOSES) == CLASSES


def test_a_typical_chat_costs_exactly_what_the_ledger_would_charge(console: ConsoleHarness) -> None:
    found = rows(console.get("/models", console.auth.sign_in()).text)
    for chat in CHATS:
        usage = Usage(chat.prompt_tokens, chat.cached_tokens, chat.completion_tokens)
        shown = [round(Decimal(cell.removeprefix("$")) * DOLLAR) for cell in found[chat.title]]
        assert shown == [PRICES[name].cost_nanos(usage) for name in CLASSES]


def test_the_account_s_own_average_is_that_of_its_requests(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    title = "This account's own, on average"
    assert rows(console.get("/models", session).text)[title] == ["No requests"] * 3
    console.backends.fill()
    text = console.get("/models", session).text
    query = sa.text("SELECT SUM(cost_nanos), SUM(requests) FROM usage_hours GROUP BY class_id")
    with console.metering.database.transaction(writes=False) as connection:
        sums = connection.execute(query).all()
    assert len(sums) == len(CLASSES)
    for cost_nanos, requests in sums:
        assert f'<data value="{format_usd((cost_nanos + requests // 2) // requests)}">' in text
    assert "No requests" not in rows(text)[title]


def test_prices_sizes_and_speed_are_told(console: ConsoleHarness) -> None:
    console.router.be_measured()
    text = console.get("/models", console.auth.sign_in()).text
    for shown in ("$2.50 a million tokens", "$0.015 a million tokens", "128,000 tokens", "16,384 tokens"):
        assert shown in text, shown
    # About, as the bounds of a histogram have it; of the class whose answers come whole, no rate.
    assert len(re.findall(r"First token after 0\.\d s, then 60 tokens a second", text)) == 2
    assert len(re.findall(r"Whole answers, after 0\.\d s", text)) == 1


def test_what_auto_is_and_which_classes_are_not_allowed_is_told_with_who_can_change_it(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    text = console.get("/models", session).text
    assert "<code>auto</code> is <strong>forte</strong>" in text
    assert "Not allowed" not in text
    console.auth.change_account(allowed_classes=ClassAllowance(("mezzo", "fortissimo")))
    text = console.get("/models", session).text
    assert "<code>auto</code> is <strong>mezzo</strong>" in text
    assert text.count("Not allowed") == 1
    assert "Allow it in the settings" in text
    console.auth.set_role(AccountRole.VIEWER)
    text = console.get("/models", session).text
    assert "Allow it in the settings" not in text
    assert "An owner can allow it in the settings." in text


def test_without_metering_or_the_router_the_rest_is_shown(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    console.backends.fail = {
        name: not_answering() for name in ("StatementService.ListPrices", "MeteringService.ListUsage")
    }
    text = console.get("/models", session).text
    assert "Prices cannot be shown right now" in text
    assert "128,000 tokens" in text
    assert "What a chat costs" not in text
    console.backends.fail = {"RouterService.ListModels": not_answering()}
    text = console.get("/models", session).text
    assert "Sizes and speed cannot be shown right now" in text
    assert "$2.50 a million tokens" in text
    assert "Too few answers" not in text


def test_a_chat_that_the_models_of_a_class_cannot_take_has_no_cost() -> None:
    short, document, _turn = CHATS
    model = router_pb2.Model(context_tokens=8_192, max_output_tokens=4_096)
    price = metering_pb2.Price(input_nanos_per_million=10**9, output_nanos_per_million=10**9)
    small = ModelClass("mezzo", False, True, price, model, None)
    assert small.cost_nanos(short) == 500_000
    assert small.cost_nanos(document) is None
