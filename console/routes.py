"""All pages of the console: one table of routes, with what each page needs, and its entry in the menu."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from console.display.language import N_
from console.pages.account import (
    account_data,
    audit_log,
    credit,
    documents,
    errors_and_speed,
    key_creation,
    key_revocation,
    keys,
    memory,
    models,
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
from console.pages.operator import models as operator_models
from console.pages.operator import reports as operator_reports
from console.pages.operator import users as operator_users
from console.pages.user import audit_log as own_audit_log
from console.pages.user import invitation, my_data, security, sign_in, sso
from console.web import step_up
from console.web.forms import unreadable_form
from console.web.refusals import Handler
from console.web.shown_once import ShownOnce


class MenuEntry(NamedTuple):
    """The entry of a page in the menu, which has the order of the table."""

    # Also the title of the page.
    title: str
    # By its name in templates/macros.html.
    icon: str
    # After a "g"; capital letters for operators' pages.
    shortcut: str


NOT_IN_MENU: Final = MenuEntry("", "", "")


@dataclass(frozen=True, slots=True)
class PageRoute:
    method: str
    path: str
    handler: Handler
    # Public pages know the signed-in user too, if there is one.
    needs_sign_in: bool = True
    # Called by a script.
    is_json: bool = False
    # Without an account there is nothing to show.
    needs_account: bool = False
    # Viewers have no notes and documents.
    needs_notes_role: bool = False
    # Its form has a file, which is read as it arrives.
    has_upload: bool = False
    # Called by another service, which signs what it sends: no browser, no form and no session.
    is_webhook: bool = False
    menu: MenuEntry = NOT_IN_MENU

    @property
    def is_in_menu(self) -> bool:
        return self.menu is not NOT_IN_MENU

    @property
    def needs_operator(self) -> bool:
        """Returns whether the page exists for operators alone."""
        return self.path.startswith("/operator")

    @property
    def is_of_account(self) -> bool:
        """Returns whether it shows something of the visitor's account, and not only a file or figures."""
        is_file = self.is_json or self.path.endswith(".csv")
        return self.method == "GET" and self.needs_sign_in and not (is_file or self.needs_operator)

    @property
    def shows_once(self) -> bool:
        """Returns whether it shows what a form made, and leads away from there if that was shown before."""
        return isinstance(getattr(self.handler, "__self__", None), ShownOnce)


def _page(
    path: str,
    *,
    get: Handler | None = None,
    post: Handler | None = None,
    menu: MenuEntry = NOT_IN_MENU,
    **needs: bool,
) -> Iterator[PageRoute]:
    if get is not None:
        yield PageRoute("GET", path, get, menu=menu, **needs)
    if post is not None:
        yield PageRoute("POST", path, post, menu=NOT_IN_MENU, **needs)


PAGES: Final[Sequence[PageRoute]] = (
    *_page("/", menu=MenuEntry(N_("Overview"), "overview", "o"), get=overview.show),
    *_page("/first-key", get=overview.FIRST_KEY.page, post=overview.create_key),
    *_page("/sign-in", get=sign_in.show, post=sign_in.with_link, needs_sign_in=False),
    *_page("/sign-in/recovery-code", post=sign_in.with_recovery_code, needs_sign_in=False),
    *_page("/sign-in/passkey/start", post=sign_in.start_passkey, needs_sign_in=False, is_json=True),
    *_page("/sign-in/passkey", post=sign_in.with_passkey, needs_sign_in=False),
    *_page("/sign-in/password", post=sign_in.with_password, needs_sign_in=False),
    *_page("/sign-in/mail", post=sign_in.send_link, needs_sign_in=False),
    *_page("/sign-in/sso", get=sso.start, needs_sign_in=False),
    *_page("/sign-in/sso/return", get=sso.finish, needs_sign_in=False),
    *_page("/sign-out", post=sign_in.sign_out, needs_sign_in=False),
    *_page("/confirm/mail", post=step_up.mail_code),
    *_page("/confirm/passkey", post=step_up.add_first_passkey),
    *_page("/invitation", get=invitation.show, post=invitation.view, needs_sign_in=False),
    *_page("/invitation/accept", post=invitation.accept, needs_sign_in=False),
    *_page("/invitation/sso", post=sso.accept_invitation, needs_sign_in=False),
    *_page("/account", post=sign_in.choose_account),
    *_page("/language", post=sign_in.choose_language, needs_sign_in=False),
    *_page("/keys", menu=MenuEntry(N_("Keys"), "keys", "k"), get=keys.show, post=key_creation.create),
    *_page("/keys/new", get=key_creation.show_new),
    *_page("/keys/revoke", get=key_revocation.ask, post=key_revocation.revoke_chosen),
    *_page("/keys/identify", get=keys.show_identify, post=keys.identify),
    *_page("/keys/{key_id}", get=keys.show_one),
    *_page("/keys/{key_id}/made", get=key_creation.MADE.page),
    *_page("/keys/{key_id}/name", post=keys.rename),
    *_page("/keys/{key_id}/limits", post=keys.set_limits),
    *_page("/keys/{key_id}/classes", post=keys.set_classes),
    *_page("/keys/{key_id}/spend-limits", get=spending.show_key, post=spending.set_key_limits),
    *_page("/keys/{key_id}/rotate", post=key_creation.rotate),
    *_page("/keys/{key_id}/revoke", post=key_revocation.revoke),
    *_page("/playground", menu=MenuEntry(N_("Playground"), "playground", "p"), get=playground.show, needs_account=True),
    *_page("/playground/token", post=playground.create_token, is_json=True),
    *_page("/playground/cost", post=playground.read_cost, is_json=True),
    *_page("/models", menu=MenuEntry(N_("Models"), "models", "l"), get=models.show, needs_account=True),
    *_page("/usage", menu=MenuEntry(N_("Usage"), "usage", "u"), get=usage.show),
    *_page("/usage.csv", get=usage.download),
    *_page("/errors-and-speed", menu=MenuEntry(N_("Errors and speed"), "status", "f"), get=errors_and_speed.show),
    *_page("/requests", menu=MenuEntry(N_("Requests"), "requests", "r"), get=requests.show),
    *_page("/requests.csv", get=requests.download),
    *_page("/requests/{request_id}", get=requests.show_one),
    *_page("/credit", menu=MenuEntry(N_("Credit"), "credit", "c"), get=credit.show),
    *_page("/credit.csv", get=credit.download),
    *_page("/credit/entries", get=credit.show_entries),
    *_page("/credit/verify", post=credit.verify),
    *_page("/credit/limits", get=spending.show, post=spending.set_limits, needs_account=True),
    *_page("/credit/add", get=payments.show_new, post=payments.begin),
    *_page("/credit/payment", get=payments.show_outcome),
    *_page("/stripe/webhook", post=payments.receive_event, needs_sign_in=False, is_json=True, is_webhook=True),
    *_page(
        "/memory",
        menu=MenuEntry(N_("Memory"), "memory", "m"),
        get=memory.show,
        post=memory.add,
        needs_notes_role=True,
        needs_account=True,
    ),
    *_page("/memory/search", post=memory.search, needs_notes_role=True),
    *_page("/memory/forget", post=memory.forget_all, needs_notes_role=True),
    *_page("/memory/{note_id}", get=memory.show_one, post=memory.edit, needs_notes_role=True),
    *_page("/memory/{note_id}/remove", post=memory.remove, needs_notes_role=True),
    *_page(
        "/documents",
        menu=MenuEntry(N_("Documents"), "documents", "d"),
        get=documents.show,
        post=documents.add,
        has_upload=True,
        needs_notes_role=True,
        needs_account=True,
    ),
    *_page("/documents/upload", post=documents.upload, is_json=True, has_upload=True, needs_notes_role=True),
    *_page("/documents/remove", post=documents.remove, needs_notes_role=True),
    *_page("/preview", get=preview.show, post=preview.preview, needs_notes_role=True, needs_account=True),
    *_page("/security", menu=MenuEntry(N_("Security"), "security", "s"), get=security.show),
    *_page("/security/passkeys/new", get=security.show_new_passkey),
    *_page("/security/passkeys/start", post=security.start_passkey, is_json=True),
    *_page("/security/passkeys", post=security.add_passkey),
    *_page("/security/passkeys/name", post=security.rename_passkey),
    *_page("/security/passkeys/remove", post=security.remove_passkey),
    *_page("/security/password", get=security.show_password, post=security.set_password),
    *_page("/security/password/remove", post=security.remove_password),
    *_page("/security/authenticator", get=security.show_totp, post=security.set_totp),
    *_page("/security/identities", post=sso.link),
    *_page("/security/identities/remove", post=security.remove_identity),
    *_page("/security/recovery-codes", get=security.RECOVERY_CODES.page, post=security.make_recovery_codes),
    *_page("/security/sessions/end", post=security.end_sessions),
    *_page("/security/name", post=security.rename_user),
    *_page("/security/audit-log", get=own_audit_log.show),
    *_page("/security/audit-log.csv", get=own_audit_log.download),
    *_page("/settings", menu=MenuEntry(N_("Settings"), "settings", "e"), get=account_settings.show),
    *_page("/settings/name", post=account_settings.rename),
    *_page("/settings/class", post=account_settings.set_class),
    *_page("/settings/allowed-classes", post=account_settings.set_allowed_classes),
    *_page("/settings/grounding", post=account_settings.set_grounding),
    *_page("/settings/members/invite", post=account_settings.invite),
    *_page("/settings/members/invited", get=account_settings.INVITED.page),
    *_page("/settings/members/cancel-invitation", post=account_settings.cancel_invitation),
    *_page("/settings/members/role", post=account_settings.change_role),
    *_page("/settings/members/{user_id}/remove", get=account_settings.show_removal),
    *_page("/settings/members/remove", post=account_settings.remove_member),
    *_page("/settings/audit-log", get=audit_log.show, needs_account=True),
    *_page("/settings/audit-log.csv", get=audit_log.download, needs_account=True),
    *_page("/settings/notices", get=notices.show, needs_account=True),
    *_page("/settings/notices/low-balance", post=notices.set_low_balance),
    *_page("/settings/notices/mail", post=notices.set_mail),
    *_page("/settings/notices/own-mail", post=notices.set_own_mail),
    *_page("/settings/notices/webhooks", get=notices.WEBHOOK.page, post=notices.add_webhook),
    *_page("/settings/notices/webhooks/remove", post=notices.remove_webhook),
    *_page("/settings/notices/test", post=notices.send_test),
    *_page("/settings/notices/resend", post=notices.resend),
    *_page("/my-data", get=my_data.show),
    *_page("/my-data/export", get=my_data.show_export),
    *_page("/my-data/user.zip", get=my_data.export),
    *_page("/my-data/account.zip", get=account_data.export, needs_account=True),
    *_page("/my-data/delete", get=my_data.show_deletion, post=my_data.delete),
    *_page("/my-data/close", get=account_data.show_closing, post=account_data.close, needs_account=True),
    *_page(
        "/operator",
        menu=MenuEntry(N_("Models"), "models", "M"),
        get=operator_models.show,
        post=operator_models.reload,
    ),
    *_page("/operator/models.json", get=operator_models.figures, is_json=True),
    *_page(
        "/operator/accounts",
        menu=MenuEntry(N_("Accounts"), "accounts", "A"),
        get=operator_accounts.show,
        post=operator_accounts.create,
    ),
    *_page("/operator/accounts/{account_id}", get=operator_accounts.show_one),
    *_page("/operator/accounts/{account_id}/keys", get=operator_accounts.show_keys),
    *_page("/operator/accounts/{account_id}/credit", post=operator_accounts.book_credit),
    *_page("/operator/accounts/{account_id}/limits", post=operator_accounts.set_limits),
    *_page("/operator/accounts/{account_id}/classes", post=operator_accounts.set_classes),
    *_page(
        "/operator/accounts/{account_id}/spend-limits",
        get=operator_accounts.show_spending,
        post=operator_accounts.set_spending,
    ),
    *_page("/operator/accounts/{account_id}/suspend", post=operator_accounts.suspend),
    *_page("/operator/accounts/{account_id}/resume", post=operator_accounts.resume),
    *_page(
        "/operator/users",
        menu=MenuEntry(N_("Users"), "users", "U"),
        get=operator_users.show,
        post=operator_users.create,
    ),
    *_page("/operator/users/{user_id}", get=operator_users.show_one),
    *_page("/operator/users/{user_id}/sign-in-link", get=operator_users.LINK.page, post=operator_users.create_link),
    *_page("/operator/users/{user_id}/disable", post=operator_users.disable),
    *_page("/operator/users/{user_id}/enable", post=operator_users.enable),
    *_page("/operator/users/{user_id}/operator", post=operator_users.set_operator),
    *_page(
        "/operator/keys",
        menu=MenuEntry(N_("Whose key?"), "identify", "K"),
        get=operator_keys.show,
        post=operator_keys.identify,
    ),
    *_page("/operator/keys/{key_id}", get=operator_keys.show_one),
    *_page("/operator/keys/{key_id}/revoke", post=operator_keys.revoke),
    *_page("/operator/reports", menu=MenuEntry(N_("Reports"), "usage", "P"), get=operator_reports.show),
    *_page("/operator/reports.csv", get=operator_reports.download),
    *_page("/operator/ledger", menu=MenuEntry(N_("Ledger audit"), "ledger", "L"), get=operator_ledger.show),
    *_page("/operator/ledger/audit", post=operator_ledger.run),
    *_page(
        "/operator/dead-letters", menu=MenuEntry(N_("Dead letters"), "letters", "D"), get=operator_dead_letters.show
    ),
    *_page("/operator/audit-log", menu=MenuEntry(N_("Audit log"), "log", "E"), get=operator_audit_log.show),
    *_page("/operator/audit-log.csv", get=operator_audit_log.download),
    *_page("/operator/audit-log/verify", post=operator_audit_log.verify),
)


def find_page(method: str, path: str) -> tuple[PageRoute, dict[str, object]]:
    for page in PAGES:
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", page.path)
        match = re.fullmatch(pattern, path)
        if page.method == method and page.needs_sign_in and match:
            return page, match.groupdict()
    raise unreadable_form()
