"""All pages of the console: one route table, with what each page needs."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from console.pages.account import (
    credit,
    documents,
    keys,
    memory,
    notices,
    overview,
    payments,
    playground,
    preview,
    requests,
    spending,
    usage,
)
from console.pages.account import settings as account_settings
from console.pages.operator import accounts as operator_accounts
from console.pages.operator import audit_log as operator_audit_log
from console.pages.operator import dead_letters as operator_dead_letters
from console.pages.operator import keys as operator_keys
from console.pages.operator import ledger as operator_ledger
from console.pages.operator import routes as operator_routes
from console.pages.operator import status as operator_status
from console.pages.operator import users as operator_users
from console.pages.user import credentials, security, sign_in, sso
from console.web import step_up
from console.web.visit import Visit
from services.chassis.errors import LegatoError, Reason

Handler = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    method: str
    path: str
    handler: Handler
    # Pages for everybody know who is signed in, if anybody is.
    needs_sign_in: bool = True
    # Called by a script.
    is_json: bool = False
    # There is no such page for anybody but operators.
    needs_operator: bool = False
    # Its form has a file, which is read as it arrives.
    has_upload: bool = False
    # Called by another service, which signs what it sends: no browser, no form and no session.
    is_webhook: bool = False
    # Shows what a form made, and leads away from there if that was shown before: see web/shown_once.py.
    shows_once: bool = False


PAGES: Final[Sequence[PageRoute]] = (
    PageRoute("GET", "/", overview.show),
    PageRoute("GET", "/first-key", overview.show_key, shows_once=True),
    PageRoute("POST", "/first-key", overview.create_key),
    PageRoute("GET", "/sign-in", sign_in.show, needs_sign_in=False),
    PageRoute("POST", "/sign-in", sign_in.with_link, needs_sign_in=False),
    PageRoute("POST", "/sign-in/recovery-code", sign_in.with_recovery_code, needs_sign_in=False),
    PageRoute("POST", "/sign-in/passkey/start", sign_in.start_passkey, needs_sign_in=False, is_json=True),
    PageRoute("POST", "/sign-in/passkey", sign_in.with_passkey, needs_sign_in=False),
    PageRoute("POST", "/sign-in/password", sign_in.with_password, needs_sign_in=False),
    PageRoute("POST", "/sign-in/mail", sign_in.send_link, needs_sign_in=False),
    PageRoute("GET", "/sign-in/sso", sso.start, needs_sign_in=False),
    PageRoute("GET", "/sign-in/sso/return", sso.finish, needs_sign_in=False),
    PageRoute("POST", "/sign-out", sign_in.sign_out, needs_sign_in=False),
    PageRoute("POST", "/confirm/mail", step_up.mail_code),
    PageRoute("POST", "/confirm/passkey", step_up.add_first_passkey),
    PageRoute("GET", "/invitation", sign_in.show_invitation, needs_sign_in=False),
    PageRoute("POST", "/invitation", sign_in.view_invitation, needs_sign_in=False),
    PageRoute("POST", "/invitation/accept", sign_in.accept_invitation, needs_sign_in=False),
    PageRoute("POST", "/invitation/sso", sso.accept_invitation, needs_sign_in=False),
    PageRoute("POST", "/account", sign_in.choose_account),
    PageRoute("GET", "/keys", keys.show),
    PageRoute("POST", "/keys", keys.create),
    PageRoute("GET", "/keys/new", keys.show_new),
    PageRoute("GET", "/keys/identify", keys.show_identify),
    PageRoute("POST", "/keys/identify", keys.identify),
    PageRoute("GET", "/keys/{key_id}", keys.show_one),
    PageRoute("GET", "/keys/{key_id}/made", keys.show_made, shows_once=True),
    PageRoute("POST", "/keys/{key_id}/name", keys.rename),
    PageRoute("POST", "/keys/{key_id}/limits", keys.set_limits),
    PageRoute("POST", "/keys/{key_id}/classes", keys.set_classes),
    PageRoute("GET", "/keys/{key_id}/spend-limits", spending.show_key),
    PageRoute("POST", "/keys/{key_id}/spend-limits", spending.set_key_limits),
    PageRoute("POST", "/keys/{key_id}/rotate", keys.rotate),
    PageRoute("POST", "/keys/{key_id}/revoke", keys.revoke),
    PageRoute("GET", "/usage", usage.show),
    PageRoute("GET", "/usage.csv", usage.download),
    PageRoute("GET", "/requests", requests.show),
    PageRoute("GET", "/requests.csv", requests.download),
    PageRoute("GET", "/requests/{request_id}", requests.show_one),
    PageRoute("GET", "/credit", credit.show),
    PageRoute("GET", "/credit.csv", credit.download),
    PageRoute("GET", "/credit/entries", credit.show_entries),
    PageRoute("POST", "/credit/verify", credit.verify),
    PageRoute("GET", "/credit/limits", spending.show),
    PageRoute("POST", "/credit/limits", spending.set_limits),
    PageRoute("GET", "/credit/add", payments.show_new),
    PageRoute("POST", "/credit/add", payments.begin),
    PageRoute("GET", "/credit/payment", payments.show_outcome),
    PageRoute("POST", "/stripe/webhook", payments.receive_event, needs_sign_in=False, is_json=True, is_webhook=True),
    PageRoute("GET", "/memory", memory.show),
    PageRoute("POST", "/memory", memory.add),
    PageRoute("POST", "/memory/search", memory.search),
    PageRoute("POST", "/memory/forget", memory.forget_all),
    PageRoute("GET", "/memory/{note_id}", memory.show_one),
    PageRoute("POST", "/memory/{note_id}", memory.edit),
    PageRoute("POST", "/memory/{note_id}/remove", memory.remove),
    PageRoute("GET", "/documents", documents.show),
    PageRoute("POST", "/documents", documents.add, has_upload=True),
    PageRoute("POST", "/documents/upload", documents.upload, is_json=True, has_upload=True),
    PageRoute("POST", "/documents/remove", documents.remove),
    PageRoute("GET", "/preview", preview.show),
    PageRoute("POST", "/preview", preview.preview),
    PageRoute("GET", "/playground", playground.show),
    PageRoute("POST", "/playground/token", playground.create_token, is_json=True),
    PageRoute("POST", "/playground/cost", playground.read_cost, is_json=True),
    PageRoute("GET", "/security", security.show),
    PageRoute("GET", "/security/passkeys/new", security.show_new_passkey),
    PageRoute("POST", "/security/passkeys/start", security.start_passkey, is_json=True),
    PageRoute("POST", "/security/passkeys", security.add_passkey),
    PageRoute("POST", "/security/passkeys/name", security.rename_passkey),
    PageRoute("POST", "/security/passkeys/remove", security.remove_passkey),
    PageRoute("GET", "/security/password", credentials.show_password),
    PageRoute("POST", "/security/password", credentials.set_password),
    PageRoute("POST", "/security/password/remove", credentials.remove_password),
    PageRoute("GET", "/security/authenticator", credentials.show_totp),
    PageRoute("POST", "/security/authenticator", credentials.set_totp),
    PageRoute("POST", "/security/identities", sso.link),
    PageRoute("POST", "/security/identities/remove", credentials.remove_identity),
    PageRoute("GET", "/security/recovery-codes", security.show_recovery_codes, shows_once=True),
    PageRoute("POST", "/security/recovery-codes", security.make_recovery_codes),
    PageRoute("POST", "/security/sessions/end", security.end_sessions),
    PageRoute("POST", "/security/name", security.rename_user),
    PageRoute("GET", "/security/audit-log", security.show_events),
    PageRoute("GET", "/settings", account_settings.show),
    PageRoute("POST", "/settings/name", account_settings.rename),
    PageRoute("POST", "/settings/class", account_settings.set_class),
    PageRoute("POST", "/settings/allowed-classes", account_settings.set_allowed_classes),
    PageRoute("POST", "/settings/grounding", account_settings.set_grounding),
    PageRoute("POST", "/settings/members/invite", account_settings.invite),
    PageRoute("GET", "/settings/members/invited", account_settings.show_invited, shows_once=True),
    PageRoute("POST", "/settings/members/cancel-invitation", account_settings.cancel_invitation),
    PageRoute("POST", "/settings/members/role", account_settings.change_role),
    PageRoute("GET", "/settings/members/{user_id}/remove", account_settings.show_removal),
    PageRoute("POST", "/settings/members/remove", account_settings.remove_member),
    PageRoute("GET", "/settings/audit-log", account_settings.show_events),
    PageRoute("GET", "/settings/notices", notices.show),
    PageRoute("POST", "/settings/notices/low-balance", notices.set_low_balance),
    PageRoute("POST", "/settings/notices/mail", notices.set_mail),
    PageRoute("POST", "/settings/notices/own-mail", notices.set_own_mail),
    PageRoute("GET", "/settings/notices/webhooks", notices.show_webhook, shows_once=True),
    PageRoute("POST", "/settings/notices/webhooks", notices.add_webhook),
    PageRoute("POST", "/settings/notices/webhooks/remove", notices.remove_webhook),
    PageRoute("POST", "/settings/notices/test", notices.send_test),
    PageRoute("POST", "/settings/notices/resend", notices.resend),
    PageRoute("GET", "/operator", operator_status.show, needs_operator=True),
    PageRoute("GET", "/operator/status.json", operator_status.figures, is_json=True, needs_operator=True),
    PageRoute("GET", "/operator/accounts", operator_accounts.show, needs_operator=True),
    PageRoute("POST", "/operator/accounts", operator_accounts.create, needs_operator=True),
    PageRoute("GET", "/operator/accounts/{account_id}", operator_accounts.show_one, needs_operator=True),
    PageRoute("GET", "/operator/accounts/{account_id}/keys", operator_accounts.show_keys, needs_operator=True),
    PageRoute("POST", "/operator/accounts/{account_id}/credit", operator_accounts.book, needs_operator=True),
    PageRoute("POST", "/operator/accounts/{account_id}/limits", operator_accounts.set_limits, needs_operator=True),
    PageRoute("POST", "/operator/accounts/{account_id}/classes", operator_accounts.set_classes, needs_operator=True),
    PageRoute(
        "GET", "/operator/accounts/{account_id}/spend-limits", operator_accounts.show_spending, needs_operator=True
    ),
    PageRoute(
        "POST", "/operator/accounts/{account_id}/spend-limits", operator_accounts.set_spending, needs_operator=True
    ),
    PageRoute("POST", "/operator/accounts/{account_id}/suspend", operator_accounts.suspend, needs_operator=True),
    PageRoute("POST", "/operator/accounts/{account_id}/resume", operator_accounts.resume, needs_operator=True),
    PageRoute("GET", "/operator/keys", operator_keys.show, needs_operator=True),
    PageRoute("POST", "/operator/keys", operator_keys.identify, needs_operator=True),
    PageRoute("GET", "/operator/keys/{key_id}", operator_keys.show_one, needs_operator=True),
    PageRoute("POST", "/operator/keys/{key_id}/revoke", operator_keys.revoke, needs_operator=True),
    PageRoute("GET", "/operator/users", operator_users.show, needs_operator=True),
    PageRoute("POST", "/operator/users", operator_users.create, needs_operator=True),
    PageRoute("GET", "/operator/users/{user_id}", operator_users.show_one, needs_operator=True),
    PageRoute(
        "GET", "/operator/users/{user_id}/sign-in-link", operator_users.show_link, needs_operator=True, shows_once=True
    ),
    PageRoute("POST", "/operator/users/{user_id}/sign-in-link", operator_users.create_link, needs_operator=True),
    PageRoute("POST", "/operator/users/{user_id}/disable", operator_users.disable, needs_operator=True),
    PageRoute("POST", "/operator/users/{user_id}/enable", operator_users.enable, needs_operator=True),
    PageRoute("POST", "/operator/users/{user_id}/operator", operator_users.set_operator, needs_operator=True),
    PageRoute("GET", "/operator/routes", operator_routes.show, needs_operator=True),
    PageRoute("POST", "/operator/routes/reload", operator_routes.reload, needs_operator=True),
    PageRoute("GET", "/operator/ledger", operator_ledger.show, needs_operator=True),
    PageRoute("POST", "/operator/ledger/audit", operator_ledger.run, needs_operator=True),
    PageRoute("GET", "/operator/dead-letters", operator_dead_letters.show, needs_operator=True),
    PageRoute("GET", "/operator/audit-log", operator_audit_log.show, needs_operator=True),
    PageRoute("POST", "/operator/audit-log/verify", operator_audit_log.verify, needs_operator=True),
)


def find_page(method: str, path: str) -> tuple[PageRoute, dict[str, Any]]:
    for page in PAGES:
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", page.path)
        match = re.fullmatch(pattern, path)
        if page.method == method and page.needs_sign_in and match:
            return page, match.groupdict()
    raise LegatoError(Reason.REQUEST_INVALID, "The form cannot be read.")
