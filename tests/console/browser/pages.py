"""Lists the pages of the console, each in every state that looks different.

Tests of accessibility, aria snapshots and screenshots go through this list: a page is added here once.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from playwright.sync_api import Page

from protos.payments.v1 import payments_pb2
from protos.type.v1 import access_token_pb2
from tests.console.browser.conftest import session_cookie
from tests.console.fakes.operator_services import METRICS
from tests.console.fakes.payments import CHECKOUT_ID
from tests.console.fakes.services import CODE, INVITATION, Fakes, not_answering
from tests.console.fakes.statements import request_id
from tests.console.harness import ConsoleHarness

KEY: Final = "/keys/key_0000000000000001"
VISITOR: Final = "the-visitor"

Prepare = Callable[[Fakes], None]
Act = Callable[[Page], None]


def _nothing(fakes: Fakes) -> None:
    """Leaves the services as they are: an account that nobody has used yet."""


def failing(*methods: str) -> Prepare:
    """Fills the account, and lets RPCs (`Service.Method`) fail."""

    def prepare(fakes: Fakes) -> None:
        fakes.fill()
        fakes.fail = {method: not_answering() for method in methods}

    return prepare


_without_metering = failing(
    "MeteringService.ListUsage",
    "MeteringService.GetBalance",
    "StatementService.ListRequests",
    "StatementService.ListLedgerDays",
    "SpendLimitService.ListSpendLimits",
)


def _rotate(fakes: Fakes) -> None:
    fakes.fill()
    fakes.add_key("Nightly report", replaces="key_0000000000000001")


def _add_many_keys(fakes: Fakes) -> None:
    fakes.fill()
    fakes.add_many_keys(150)


def _suspend(fakes: Fakes) -> None:
    fakes.is_suspended = True


def _become_viewer(fakes: Fakes) -> None:
    fakes.fill()
    fakes.role = access_token_pb2.ACCOUNT_ROLE_VIEWER


def _answer_with_the_bundled_model(fakes: Fakes) -> None:
    fakes.fill()
    fakes.bundled_classes = {"mezzo", "forte", "fortissimo"}


def _narrow(fakes: Fakes) -> None:
    fakes.fill()
    fakes.allowed_classes = ["mezzo", "fortissimo"]


def _grow_stale(fakes: Fakes) -> None:
    fakes.fill()
    fakes.is_fresh = False


def _grow_stale_with_a_link_alone(fakes: Fakes) -> None:
    fakes.is_fresh = False


def _grow_stale_with_mail(fakes: Fakes) -> None:
    fakes.is_fresh, fakes.methods.mail = False, True


def _fill_grounding(fakes: Fakes) -> None:
    fakes.fill()
    fakes.fill_grounding()


def _fill_notices(fakes: Fakes) -> None:
    fakes.fill()
    fakes.fill_notices()


def _switch_off_grounding(fakes: Fakes) -> None:
    fakes.fill_grounding()
    fakes.switches = dict.fromkeys(fakes.switches, False)


def _unconfigure_grounding(fakes: Fakes) -> None:
    fakes.grounding.Clear()


def _grow_stale_with_all_ways(fakes: Fakes) -> None:
    fakes.offer_everything()
    fakes.is_fresh = False


def _pay(fakes: Fakes) -> None:
    """Pays today, in an account that has nothing else: the statement is the same on every day."""
    fakes.balance.balance_nanos = 0
    fakes.book_payments()


def _owe(fakes: Fakes) -> None:
    fakes.balance.balance_nanos = 0
    fakes.balance.owed_nanos = 4_350_000_000


def _wait_for_the_money(fakes: Fakes) -> None:
    fakes.fill()
    fakes.checkout_state = payments_pb2.CHECKOUT_STATE_PROCESSING


def _leave_the_checkout(fakes: Fakes) -> None:
    fakes.fill()
    fakes.checkout_state = payments_pb2.CHECKOUT_STATE_OPEN


def _leave_all_accounts(fakes: Fakes) -> None:
    fakes.has_account = False


# Pages of somebody who is signed in: the path, and what the services know.
def _spend_in_october(fakes: Fakes) -> None:
    """A statement has a row for each day of its month, so the month is not this one."""
    fakes.fill()
    fakes.reset_statements()
    key_ids = [each.key_id for each in fakes.keys[:4]]
    fakes.fill_statements(key_ids, fakes.balance.balance_nanos, now=datetime(2026, 10, 28, 15, tzinfo=UTC))


STATES: Final[dict[str, tuple[str, Prepare]]] = {
    "overview": ("/", Fakes.fill),
    "overview-without-use": ("/", _nothing),
    "overview-suspended": ("/", _suspend),
    "overview-without-metering": ("/", _without_metering),
    "overview-without-auth": ("/", failing("SignInService.ResolveSession")),
    "overview-without-account": ("/", _leave_all_accounts),
    "keys": ("/keys", Fakes.fill),
    "keys-none": ("/keys", _nothing),
    "keys-without-metering": ("/keys", _without_metering),
    "keys-viewer": ("/keys", _become_viewer),
    "keys-many": ("/keys", _add_many_keys),
    "keys-found": ("/keys?q=service+010&show=active", _add_many_keys),
    "keys-not-found": ("/keys?q=nonsense", _add_many_keys),
    "key": (KEY, _rotate),
    "key-without-metering": (KEY, _without_metering),
    "key-new": ("/keys/new", Fakes.fill),
    "key-spend-limits": ("/keys/key_0000000000000002/spend-limits", Fakes.fill),
    "identify": ("/keys/identify", Fakes.fill),
    "playground": ("/playground", Fakes.fill),
    "playground-bundled": ("/playground", _answer_with_the_bundled_model),
    "playground-viewer": ("/playground", _become_viewer),
    "usage": ("/usage", Fakes.fill),
    "usage-by-member": ("/usage?by=member&period=90", Fakes.fill),
    "usage-by-many-keys": ("/usage?by=key", _add_many_keys),
    "usage-none": ("/usage", _nothing),
    "usage-wrong-dates": ("/usage?period=custom&from=2026-02-02&to=2026-01-01", Fakes.fill),
    "usage-without-metering": ("/usage", _without_metering),
    "requests": ("/requests", Fakes.fill),
    "requests-none": ("/requests", _nothing),
    "requests-without-metering": ("/requests", _without_metering),
    "receipt": (f"/requests/{request_id(5)}", Fakes.fill),
    "receipt-running": (f"/requests/{request_id(9_000)}", Fakes.fill),
    "receipt-not-charged": (f"/requests/{request_id(9_001)}", Fakes.fill),
    "receipt-unknown": (f"/requests/{request_id(9_999)}", Fakes.fill),
    "credit": ("/credit?month=2026-10", _spend_in_october),
    "credit-none": ("/credit", _nothing),
    "credit-owed": ("/credit", _owe),
    "credit-without-metering": ("/credit", _without_metering),
    "credit-paid": (f"/credit/payment?checkout={CHECKOUT_ID}", _pay),
    "credit-add": ("/credit/add", Fakes.fill),
    "credit-add-cancelled": ("/credit/add?cancelled=1", Fakes.fill),
    "payment-processing": (f"/credit/payment?checkout={CHECKOUT_ID}", _wait_for_the_money),
    "payment-open": (f"/credit/payment?checkout={CHECKOUT_ID}", _leave_the_checkout),
    "entries": ("/credit/entries", Fakes.fill),
    "spend-limits": ("/credit/limits", Fakes.fill),
    "spend-limits-without-metering": ("/credit/limits", _without_metering),
    "memory": ("/memory", _fill_grounding),
    "memory-none": ("/memory", _nothing),
    "memory-off": ("/memory", _switch_off_grounding),
    "memory-not-configured": ("/memory", _unconfigure_grounding),
    "memory-without-router": ("/memory", failing("GroundingAdminService.GetGroundingConfig")),
    "note": ("/memory/note_0000000000000003", _fill_grounding),
    "note-unreadable": ("/memory/note_00000000000000ff", _fill_grounding),
    "documents": ("/documents", _fill_grounding),
    "documents-none": ("/documents", _nothing),
    "documents-off": ("/documents", _switch_off_grounding),
    "documents-not-configured": ("/documents", _unconfigure_grounding),
    "documents-without-router": ("/documents", failing("GroundingAdminService.GetGroundingConfig")),
    "preview": ("/preview", _fill_grounding),
    "security": ("/security", Fakes.fill),
    "security-empty": ("/security", _nothing),
    "security-audit-log": ("/security/audit-log", Fakes.fill),
    "passkey-new": ("/security/passkeys/new", Fakes.fill),
    "confirm": ("/security/passkeys/new", _grow_stale),
    "confirm-first-passkey": ("/security/passkeys/new", _grow_stale_with_a_link_alone),
    "security-all-ways": ("/security", Fakes.offer_everything),
    "password": ("/security/password", Fakes.offer_everything),
    "authenticator": ("/security/authenticator", Fakes.offer_everything),
    "confirm-all-ways": ("/security/password", _grow_stale_with_all_ways),
    "sign-in-provider-away": ("/sign-in/sso", failing("SignInMethodService.StartOidcSignIn")),
    "settings": ("/settings", Fakes.fill),
    "settings-narrowed": ("/settings", _narrow),
    "settings-viewer": ("/settings", _become_viewer),
    "member-removal": ("/settings/members/user_2/remove", Fakes.fill),
    "member-removal-own": ("/settings/members/user_1/remove", _become_viewer),
    "settings-without-router": ("/settings", failing("RouterService.ListModels")),
    "notices": ("/settings/notices", _fill_notices),
    "notices-none": ("/settings/notices", _nothing),
    "notices-without-metering": ("/settings/notices", failing("NoticeThresholdService.GetLowBalance")),
    "audit-log": ("/settings/audit-log", Fakes.fill),
    "audit-log-empty": ("/settings/audit-log", _nothing),
    "not-found": ("/nowhere", Fakes.fill),
}


def _look(page: Page) -> None:
    """Does nothing: the page itself is the state."""


def _try_a_wrong_code(page: Page) -> None:
    page.get_by_label("Code of your sign-in link").fill("AAAA-BBBB")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_text("That did not work").wait_for()


def _show_the_invitation(page: Page) -> None:
    page.get_by_label("Code of the invitation").fill(INVITATION)
    page.get_by_role("button", name="Show the invitation").click()
    page.get_by_role("button", name="Accept", exact=True).wait_for()


# Pages of nobody in particular: the path, and what one does there.
BEFORE_SIGN_IN: Final[dict[str, tuple[str, Act]]] = {
    "sign-in": ("/sign-in", _look),
    "sign-in-failed": ("/sign-in", _try_a_wrong_code),
    "invitation": ("/invitation", _look),
    "invitation-shown": ("/invitation", _show_the_invitation),
    "not-found-before-sign-in": ("/nowhere", _look),
}


def _try_a_wrong_password(page: Page) -> None:
    page.get_by_text("Other ways to sign in").click()
    page.get_by_label("Email address", exact=True).fill("ada@example.ca")
    page.get_by_label("Password").fill("wrong")
    page.get_by_label("Code of your authenticator app").fill("000000")
    page.get_by_role("button", name="Sign in with your password").click()
    page.get_by_text("That did not work").wait_for()


# The same, where every way to sign in is set up.
BEFORE_SIGN_IN_WITH_ALL_WAYS: Final[dict[str, tuple[str, Act]]] = {
    "sign-in-all-ways": ("/sign-in", _look),
    "sign-in-all-ways-failed": ("/sign-in", _try_a_wrong_password),
    "sign-in-provider-failed": ("/sign-in/sso/return", _look),
    "invitation-all-ways": ("/invitation", _show_the_invitation),
}


def _create_a_key(page: Page) -> None:
    page.get_by_role("button", name="Create the key").click()
    page.get_by_text("Save the key now").wait_for()


def _mistype_a_limit(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.get_by_label("Requests per minute").fill("many")
    page.get_by_role("button", name="Create the key").click()
    page.get_by_text("A whole number, or nothing.").first.wait_for()


def _mistype_a_spend_limit(page: Page) -> None:
    page.get_by_label("Dollars a day").fill("five")
    page.get_by_role("button", name="Set the spend limits").click()
    page.get_by_text("An amount in dollars such as 5.00, or nothing.").first.wait_for()


def _create_the_first_key(page: Page) -> None:
    page.get_by_role("button", name="Create a key and insert it").click()
    page.get_by_text("Your key is in the examples below").wait_for()


def _revoke(page: Page) -> None:
    page.locator("summary", has_text="Revoke").click()
    page.get_by_role("button", name="Revoke this key").click()
    page.get_by_text("Every edge refuses the key").wait_for()


def _mistype_an_amount(page: Page) -> None:
    page.get_by_label("Or another amount").fill("a lot")
    page.get_by_role("button", name="Continue to payment").click()
    page.get_by_text("One field needs another look").wait_for()


def _make_recovery_codes(page: Page) -> None:
    page.get_by_role("button", name="Make new codes").click()
    page.get_by_text("Save them now").wait_for()


def _mistype_a_code(page: Page) -> None:
    page.get_by_label("Code", exact=True).fill("000000")
    page.get_by_role("button", name="Set up").click()
    page.get_by_text("the picture is the same").wait_for()


def _link_an_identity(page: Page) -> None:
    page.get_by_role("button", name="Link login.example.ca").click()
    page.get_by_role("link", name="Continue").wait_for()


def _invite(page: Page) -> None:
    page.get_by_text("Invite somebody").click()
    page.get_by_role("button", name="Make the invitation").click()
    page.get_by_text("Pass this link on").wait_for()


def _have_a_code_mailed(page: Page) -> None:
    page.get_by_role("button", name="Mail me a code").click()
    page.get_by_text("A code is on its way").wait_for()


def _show_the_invitation_while_signed_in(page: Page) -> None:
    page.get_by_label("Code of the invitation").fill(INVITATION)
    page.get_by_role("button", name="Show the invitation").click()
    page.get_by_role("heading", name="Join").wait_for()


def _add_a_webhook(page: Page) -> None:
    page.get_by_label("Address of a new webhook").fill("https://hooks.example.ca/second")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("Save the secret now").wait_for()


# Pages that answer a form: the path of the form, what the services know, and what one does there.
ANSWERS: Final[dict[str, tuple[str, Prepare, Act]]] = {
    "first-key-made": ("/", _nothing, _create_the_first_key),
    "key-made": ("/keys/new", Fakes.fill, _create_a_key),
    "key-new-mistyped": ("/keys/new", Fakes.fill, _mistype_a_limit),
    "spend-limits-mistyped": ("/credit/limits", Fakes.fill, _mistype_a_spend_limit),
    "key-revoked": (KEY, Fakes.fill, _revoke),
    "credit-add-mistyped": ("/credit/add", Fakes.fill, _mistype_an_amount),
    "recovery-codes": ("/security", Fakes.fill, _make_recovery_codes),
    "authenticator-mistyped": ("/security/authenticator", Fakes.offer_everything, _mistype_a_code),
    "sign-in-provider": ("/security", Fakes.offer_everything, _link_an_identity),
    "invited": ("/settings", Fakes.fill, _invite),
    "confirm-mailed": ("/security/passkeys/new", _grow_stale_with_mail, _have_a_code_mailed),
    "sign-in-while-signed-in": (f"/sign-in#{CODE}", _nothing, _look),
    "invitation-while-signed-in": ("/invitation", _nothing, _show_the_invitation_while_signed_in),
    "webhook-made": ("/settings/notices", _fill_notices, _add_a_webhook),
}

OPERATOR_ACCOUNT: Final = "/operator/accounts/acct_0000000000000001"


def _fill_operator(fakes: Fakes) -> None:
    fakes.operator.fill()


def _fill_dead_letters(fakes: Fakes) -> None:
    fakes.operator.fill()
    fakes.fill_dead_letters()


def _fill_operator_with_limits(fakes: Fakes) -> None:
    fakes.fill()
    fakes.operator.fill()


def _change_routes(fakes: Fakes) -> None:
    fakes.operator.fill()
    fakes.operator.route_changes = [
        "- forte: 1. maple-large of maple, context_tokens 128000, max_output_tokens 16384, concurrency 48",
        "+ forte: 1. maple-large of maple, context_tokens 128000, max_output_tokens 16384, concurrency 64",
        "+ provider cedar: another key",
    ]


def _break_operator(fakes: Fakes) -> None:
    fakes.operator.fill()
    fakes.fail = {
        name: not_answering() for name in ("CreditAdminService.ListBalances", "RouteAdminService.ListTargets")
    }
    fakes.operator.missing = {"edge-2": ["auth", "metering"]}
    fakes.operator.metrics["metering"] = METRICS["metering"]().replace("violations 0.0", "violations 2.0")


# Pages of an operator. Their figures change from one moment to the next, so they have no snapshots.
OPERATOR_STATES: Final[dict[str, tuple[str, Prepare]]] = {
    "status": ("/operator", _fill_operator),
    "status-broken": ("/operator", _break_operator),
    "status-empty": ("/operator", _nothing),
    "accounts": ("/operator/accounts", _fill_operator),
    "account": (OPERATOR_ACCOUNT, _fill_operator),
    "account-suspended-without-metering": ("/operator/accounts/acct_0000000000000004", _break_operator),
    "account-keys": (f"{OPERATOR_ACCOUNT}/keys", _fill_operator),
    "account-spend-limits": (f"{OPERATOR_ACCOUNT}/spend-limits", _fill_operator_with_limits),
    "whose-key": ("/operator/keys", _fill_operator),
    "key": ("/operator/keys/key_0000000000000001", _fill_operator),
    "users": ("/operator/users", _fill_operator),
    "user": ("/operator/users/user_2", _fill_operator),
    "routes": ("/operator/routes", _fill_operator),
    "routes-changed": ("/operator/routes", _change_routes),
    "routes-broken": ("/operator/routes", _break_operator),
    "ledger": ("/operator/ledger", _fill_operator),
    "dead-letters": ("/operator/dead-letters", _fill_dead_letters),
    "dead-letters-none": ("/operator/dead-letters", _nothing),
    "audit-log": ("/operator/audit-log", _fill_operator),
}

STRANGERS: Final = (*BEFORE_SIGN_IN, *BEFORE_SIGN_IN_WITH_ALL_WAYS)
NAMES: Final = (*STATES, *STRANGERS, *ANSWERS)
# As `open_state` takes them: some states have the names of others.
OPERATOR_NAMES: Final = tuple(f"operator-{name}" for name in OPERATOR_STATES)
PATHS: Final = frozenset(
    entry[0]
    for table in (STATES, BEFORE_SIGN_IN, BEFORE_SIGN_IN_WITH_ALL_WAYS, ANSWERS, OPERATOR_STATES)
    for entry in table.values()
)


def open_state(page: Page, console: ConsoleHarness, name: str) -> None:
    """Opens a page in one of the states of this list, in a page whose cookies are its own."""
    path, prepare, act = _find(name)
    console.fakes.reset()
    console.fakes.is_operator = name in OPERATOR_NAMES
    prepare(console.fakes)
    page.context.clear_cookies()
    if name not in STRANGERS:
        console.fakes.sessions.add(VISITOR)
        page.context.add_cookies([session_cookie(console, VISITOR)])
    page.goto(path)
    act(page)
    # Scripts have run by then: what they show belongs to the page.
    page.wait_for_load_state("load")


def _find(name: str) -> tuple[str, Prepare, Act]:
    if name in STATES:
        return *STATES[name], _look
    if name in ANSWERS:
        return ANSWERS[name]
    if name in OPERATOR_NAMES:
        return *OPERATOR_STATES[name.removeprefix("operator-")], _look
    if name in BEFORE_SIGN_IN_WITH_ALL_WAYS:
        path, act = BEFORE_SIGN_IN_WITH_ALL_WAYS[name]
        return path, Fakes.offer_everything, act
    path, act = BEFORE_SIGN_IN[name]
    return path, _nothing, act
