"""Lists the pages of the console, each in every state that looks different.

Tests of accessibility, aria snapshots and screenshots go through this list. A page that has no state here is in it all
the same, filled: a line is for what looks different, and for an address with an id in it.
"""

from typing import Final
from zlib import crc32

from playwright.sync_api import Page

from console.display.language import COOKIE, ENGLISH
from console.routes import PAGES, PageRoute
from tests.console.auth_rows import CODE, OTHER_ACCOUNT_ID, OTHER_KEY_ID, SUSPENDED_ACCOUNT_ID
from tests.console.backends import Backends
from tests.console.browser.actions import (
    Act,
    add_a_webhook,
    close_the_account,
    compare_two_answers,
    create_a_key,
    create_the_first_key,
    delete_the_user,
    have_a_code_mailed,
    invite,
    link_an_identity,
    look,
    make_recovery_codes,
    mistype_a_code,
    mistype_a_limit,
    mistype_a_spend_limit,
    mistype_an_amount,
    revoke,
    revoke_chosen_keys,
    revoke_keys_of_others_too,
    show_the_invitation,
    show_the_invitation_while_signed_in,
    try_a_wrong_code,
    try_a_wrong_password,
)
from tests.console.browser.axe import LOOKS, NIGHT, Look, assert_accessible, take_look
from tests.console.browser.conftest import session_cookie
from tests.console.browser.french import in_french
from tests.console.browser.prepared_services import (
    Prepare,
    add_many_keys,
    answer_with_the_bundled_model,
    become_member,
    become_viewer,
    become_viewer_without_credit,
    begin_to_close,
    break_operator,
    change_routes,
    evaluate_models,
    failing,
    fill_dead_letters,
    fill_grounding,
    fill_notices,
    fill_operator,
    fill_operator_with_limits,
    grow_stale,
    grow_stale_with_a_link_alone,
    grow_stale_with_all_ways,
    grow_stale_with_mail,
    have_another_owner,
    leave_all_accounts,
    leave_the_checkout,
    measure_models,
    narrow,
    nothing,
    open_the_playground,
    owe,
    pay,
    reach_limits,
    rotate,
    run_low_on_credit,
    run_out_of_credit,
    suspend,
    suspend_without_credit,
    switch_off_grounding,
    unconfigure_grounding,
    wait_for_the_money,
    without_metering,
)
from tests.console.browser.reading import english_dates, hidden_cells
from tests.console.harness import ConsoleHarness
from tests.console.metering import request_id
from tests.console.payments import CHECKOUT_ID

KEY_ID: Final = "key_0000000000000001"
OLD_KEY_ID: Final = "key_0000000000000003"
KEY: Final = f"/keys/{KEY_ID}"


STATES: Final[dict[str, tuple[str, Prepare]]] = {
    "overview": ("/", Backends.fill),
    "overview-without-use": ("/", nothing),
    "overview-suspended": ("/", suspend),
    "overview-out-of-credit": ("/", run_out_of_credit),
    "overview-suspended-out-of-credit": ("/", suspend_without_credit),
    "overview-low-credit": ("/", run_low_on_credit),
    "overview-without-metering": ("/", without_metering),
    "overview-without-auth": ("/", failing("SignInService.ResolveSession")),
    "overview-without-account": ("/", leave_all_accounts),
    "keys": ("/keys", Backends.fill),
    "keys-none": ("/keys", nothing),
    "keys-without-metering": ("/keys", without_metering),
    "keys-refused": ("/keys", reach_limits),
    "keys-viewer": ("/keys", become_viewer),
    "keys-viewer-out-of-credit": ("/keys", become_viewer_without_credit),
    "keys-many": ("/keys", add_many_keys),
    "keys-found": ("/keys?q=service+010&show=active", add_many_keys),
    "keys-not-found": ("/keys?q=nonsense", add_many_keys),
    "keys-unused": ("/keys?unused=30&choose=all", Backends.fill),
    "keys-revoke": (f"/keys/revoke?key={KEY_ID}&key={OLD_KEY_ID}&key=key_0000000000000004", Backends.fill),
    "keys-revoke-none": ("/keys/revoke", Backends.fill),
    "key": (KEY, rotate),
    "key-without-metering": (KEY, without_metering),
    "key-playground": ("/keys/key_0000000000000006", open_the_playground),
    "key-new": ("/keys/new", Backends.fill),
    "key-spend-limits": ("/keys/key_0000000000000002/spend-limits", reach_limits),
    "identify": ("/keys/identify", Backends.fill),
    "playground": ("/playground", Backends.fill),
    "playground-bundled": ("/playground", answer_with_the_bundled_model),
    "playground-viewer": ("/playground", become_viewer),
    "models": ("/models", measure_models),
    "models-narrowed": ("/models", narrow),
    "models-viewer": ("/models", become_viewer),
    "models-bundled": ("/models", answer_with_the_bundled_model),
    "models-without-metering": ("/models", without_metering),
    "models-without-router": ("/models", failing("RouterService.ListModels")),
    "usage": ("/usage", Backends.fill),
    "usage-by-member": ("/usage?by=member&period=90", Backends.fill),
    "usage-by-many-keys": ("/usage?by=key", add_many_keys),
    "usage-none": ("/usage", nothing),
    "usage-wrong-dates": ("/usage?period=custom&from=2026-02-02&to=2026-01-01", Backends.fill),
    "usage-without-metering": ("/usage", without_metering),
    "errors-and-speed": ("/errors-and-speed", Backends.fill),
    "errors-and-speed-none": ("/errors-and-speed?period=today", nothing),
    "errors-and-speed-without-metering": ("/errors-and-speed", without_metering),
    "requests": ("/requests", Backends.fill),
    "requests-none": ("/requests", nothing),
    "requests-without-metering": ("/requests", without_metering),
    "receipt": (f"/requests/{request_id(5)}", Backends.fill),
    "receipt-running": (f"/requests/{request_id(9_000)}", Backends.fill),
    "receipt-not-charged": (f"/requests/{request_id(9_001)}", Backends.fill),
    "receipt-unknown": (f"/requests/{request_id(9_999)}", Backends.fill),
    "credit": ("/credit", Backends.fill),
    "credit-none": ("/credit", nothing),
    "credit-owed": ("/credit", owe),
    "credit-without-metering": ("/credit", without_metering),
    "credit-paid": (f"/credit/payment?checkout={CHECKOUT_ID}", pay),
    "credit-add": ("/credit/add", Backends.fill),
    "credit-add-cancelled": ("/credit/add?cancelled=1", Backends.fill),
    "payment-processing": (f"/credit/payment?checkout={CHECKOUT_ID}", wait_for_the_money),
    "payment-open": (f"/credit/payment?checkout={CHECKOUT_ID}", leave_the_checkout),
    "entries": ("/credit/entries", Backends.fill),
    "spend-limits": ("/credit/limits", reach_limits),
    "spend-limits-without-metering": ("/credit/limits", without_metering),
    "memory": ("/memory", fill_grounding),
    "memory-none": ("/memory", nothing),
    "memory-off": ("/memory", switch_off_grounding),
    "memory-not-configured": ("/memory", unconfigure_grounding),
    "memory-without-router": ("/memory", failing("GroundingAdminService.GetGroundingConfig")),
    "note": ("/memory/note_0000000000000003", fill_grounding),
    "note-unreadable": ("/memory/note_00000000000000ff", fill_grounding),
    "documents": ("/documents", fill_grounding),
    "documents-none": ("/documents", nothing),
    "documents-off": ("/documents", switch_off_grounding),
    "documents-not-configured": ("/documents", unconfigure_grounding),
    "documents-without-router": ("/documents", failing("GroundingAdminService.GetGroundingConfig")),
    "preview": ("/preview", fill_grounding),
    "security": ("/security", Backends.fill),
    "security-empty": ("/security", nothing),
    "passkey-new": ("/security/passkeys/new", Backends.fill),
    "confirm": ("/security/passkeys/new", grow_stale),
    "confirm-first-passkey": ("/security/passkeys/new", grow_stale_with_a_link_alone),
    "security-all-ways": ("/security", Backends.offer_everything),
    "password": ("/security/password", Backends.offer_everything),
    "authenticator": ("/security/authenticator", Backends.offer_everything),
    "confirm-all-ways": ("/security/password", grow_stale_with_all_ways),
    "sign-in-provider-away": ("/sign-in/sso", failing("SignInService.StartOidcSignIn")),
    "settings": ("/settings", Backends.fill),
    "settings-narrowed": ("/settings", narrow),
    "settings-viewer": ("/settings", become_viewer),
    "member-removal": ("/settings/members/user_2/remove", Backends.fill),
    "member-removal-own": ("/settings/members/user_1/remove", become_viewer),
    "settings-without-router": ("/settings", failing("RouterService.ListModels")),
    "notices": ("/settings/notices", fill_notices),
    "notices-none": ("/settings/notices", nothing),
    "notices-without-metering": ("/settings/notices", failing("NoticeThresholdService.GetLowBalance")),
    "audit-log": ("/settings/audit-log", Backends.fill),
    "audit-log-empty": ("/settings/audit-log", nothing),
    "audit-log-filtered": ("/settings/audit-log?action=webhook&refused=on", Backends.fill),
    "my-data": ("/my-data", Backends.fill),
    "my-data-viewer": ("/my-data", become_viewer),
    "my-data-close": ("/my-data/close", fill_grounding),
    "my-data-close-unfinished": ("/my-data/close", begin_to_close),
    "not-found": ("/nowhere", Backends.fill),
}


# Public pages: the path, and what one does there.
BEFORE_SIGN_IN: Final[dict[str, tuple[str, Act]]] = {
    "sign-in": ("/sign-in", look),
    "sign-in-failed": ("/sign-in", try_a_wrong_code),
    "invitation": ("/invitation", look),
    "invitation-shown": ("/invitation", show_the_invitation),
    "not-found-before-sign-in": ("/nowhere", look),
}


# The same, where every way to sign in is set up.
BEFORE_SIGN_IN_WITH_ALL_WAYS: Final[dict[str, tuple[str, Act]]] = {
    "sign-in-all-ways": ("/sign-in", look),
    "sign-in-all-ways-failed": ("/sign-in", try_a_wrong_password),
    "sign-in-provider-failed": ("/sign-in/sso/return", look),
    "invitation-all-ways": ("/invitation", show_the_invitation),
}


# Pages that answer a form: the path of the form, what the services know, and what one does there.
ANSWERS: Final[dict[str, tuple[str, Prepare, Act]]] = {
    "first-key-made": ("/", nothing, create_the_first_key),
    "key-made": ("/keys/new", Backends.fill, create_a_key),
    "key-new-mistyped": ("/keys/new", Backends.fill, mistype_a_limit),
    "keys-revoked": (f"/keys/revoke?key={KEY_ID}&key={OLD_KEY_ID}", Backends.fill, revoke_chosen_keys),
    "keys-revoked-in-part": ("/keys", become_member, revoke_keys_of_others_too),
    "spend-limits-mistyped": ("/credit/limits", Backends.fill, mistype_a_spend_limit),
    "key-revoked": (KEY, Backends.fill, revoke),
    "credit-add-mistyped": ("/credit/add", Backends.fill, mistype_an_amount),
    "recovery-codes": ("/security", Backends.fill, make_recovery_codes),
    "authenticator-mistyped": ("/security/authenticator", Backends.offer_everything, mistype_a_code),
    "sign-in-provider": ("/security", Backends.offer_everything, link_an_identity),
    "invited": ("/settings", Backends.fill, invite),
    "confirm-mailed": ("/security/passkeys/new", grow_stale_with_mail, have_a_code_mailed),
    "sign-in-while-signed-in": (f"/sign-in#{CODE}", nothing, look),
    "invitation-while-signed-in": ("/invitation", nothing, show_the_invitation_while_signed_in),
    "my-data-delete-refused": ("/my-data/delete", Backends.fill, delete_the_user),
    "my-data-deleted": ("/my-data/delete", have_another_owner, delete_the_user),
    "my-data-closed": ("/my-data/close", fill_grounding, close_the_account),
    "webhook-made": ("/settings/notices", fill_notices, add_a_webhook),
    "playground-compared": ("/playground", Backends.fill, compare_two_answers),
}


OPERATOR_ACCOUNT: Final = f"/operator/accounts/{OTHER_ACCOUNT_ID}"


# Pages of an operator. Their figures change from one moment to the next, so they have no snapshots.
OPERATOR_STATES: Final[dict[str, tuple[str, Prepare]]] = {
    "models": ("/operator", fill_operator),
    "models-changed": ("/operator", change_routes),
    "models-evaluated": ("/operator", evaluate_models),
    "models-broken": ("/operator", break_operator),
    "models-empty": ("/operator", nothing),
    "accounts": ("/operator/accounts", fill_operator),
    "account": (OPERATOR_ACCOUNT, fill_operator),
    "account-suspended-without-metering": (f"/operator/accounts/{SUSPENDED_ACCOUNT_ID}", break_operator),
    "account-keys": (f"{OPERATOR_ACCOUNT}/keys", fill_operator),
    "account-spend-limits": (f"{OPERATOR_ACCOUNT}/spend-limits", fill_operator_with_limits),
    "whose-key": ("/operator/keys", fill_operator),
    "key": (f"/operator/keys/{OTHER_KEY_ID}", fill_operator),
    "users": ("/operator/users", fill_operator),
    "user": ("/operator/users/user_2", fill_operator),
    "reports": ("/operator/reports?by=model", fill_operator_with_limits),
    "reports-none": ("/operator/reports", nothing),
    "ledger": ("/operator/ledger", fill_operator),
    "dead-letters": ("/operator/dead-letters", fill_dead_letters),
    "dead-letters-none": ("/operator/dead-letters", nothing),
    "audit-log": ("/operator/audit-log", fill_operator),
}


def is_shown(page: PageRoute) -> bool:
    """Returns whether a page is opened by its address alone, and is no file. Those that show a result once are reached
    by a form: ANSWERS has them."""
    is_file = page.is_json or page.path.endswith((".csv", ".zip"))
    return page.method == "GET" and not is_file and not page.shows_once


def _add_plain_pages() -> None:
    listed = {path.partition("?")[0] for table in (STATES, OPERATOR_STATES) for path, _prepare in table.values()}
    for page in PAGES:
        if is_shown(page) and page.path not in listed and "{" not in page.path and page.needs_sign_in:
            name = page.path.strip("/").replace("/", "-")
            if page.needs_operator:
                OPERATOR_STATES[name.removeprefix("operator-")] = (page.path, fill_operator)
            else:
                STATES[name] = (page.path, Backends.fill)


_add_plain_pages()

STRANGERS: Final = (*BEFORE_SIGN_IN, *BEFORE_SIGN_IN_WITH_ALL_WAYS)


NAMES: Final = (*STATES, *STRANGERS, *ANSWERS)


# As `open_state` takes them: some states have the names of others.
OPERATOR_NAMES: Final = tuple(f"operator-{name}" for name in OPERATOR_STATES)


PATHS: Final = frozenset(
    entry[0]
    for table in (STATES, BEFORE_SIGN_IN, BEFORE_SIGN_IN_WITH_ALL_WAYS, ANSWERS, OPERATOR_STATES)
    for entry in table.values()
)


def open_state(page: Page, console: ConsoleHarness, name: str, language: str = ENGLISH) -> None:
    """Opens a page in one of the states of this list, in a page whose cookies are its own."""
    path, prepare, act = _find(name)
    console.backends.reset()
    if name in OPERATOR_NAMES:
        console.auth.be_operator()
    prepare(console.backends)
    page.context.clear_cookies()
    if name not in STRANGERS:
        page.context.add_cookies([session_cookie(console, console.auth.sign_in())])
    _choose(page, console, language)
    page.goto(path)
    act(page if language == ENGLISH else in_french(page))
    # Scripts have run by then: what they show belongs to the page.
    page.wait_for_load_state("load")


def look_of(name: str) -> Look:
    """Returns the look that `make test` judges a state in, the same each time: half of the states have each."""
    return LOOKS[crc32(name.encode()) % len(LOOKS)]


def other_look_of(name: str) -> Look:
    return LOOKS[(crc32(name.encode()) + 1) % len(LOOKS)]


def assert_accessible_in_one_look(page: Page, console: ConsoleHarness, name: str, look: Look) -> None:
    """Has axe judge a state, which is open in English in daylight, in one look: at night in French, which is read on a
    phone, too."""
    if look is NIGHT:
        take_look(page, NIGHT)
        _show_in_french(page, console, name)
        assert page.evaluate("document.documentElement.lang") == "fr-CA"
    assert_accessible(page, (look,))
    if look is NIGHT:
        assert hidden_cells(page) == []
        assert english_dates(page) == []


def _show_in_french(page: Page, console: ConsoleHarness, name: str) -> None:
    path, _prepare, act = _find(name)
    if act is look and "#" not in path:
        _choose(page, console, "fr")
        page.reload()
    else:
        # What answers a form cannot be loaded again. Nor is a page loaded by another fragment of its address.
        page.goto("about:blank")
        open_state(page, console, name, "fr")


def _choose(page: Page, console: ConsoleHarness, language: str) -> None:
    page.context.add_cookies([{"name": COOKIE, "value": language, "url": console.origin}])


def _find(name: str) -> tuple[str, Prepare, Act]:
    if name in STATES:
        return *STATES[name], look
    if name in ANSWERS:
        return ANSWERS[name]
    if name in OPERATOR_NAMES:
        return *OPERATOR_STATES[name.removeprefix("operator-")], look
    if name in BEFORE_SIGN_IN_WITH_ALL_WAYS:
        path, act = BEFORE_SIGN_IN_WITH_ALL_WAYS[name]
        return path, Backends.offer_everything, act
    path, act = BEFORE_SIGN_IN[name]
    return path, nothing, act
