"""All pages of the console: one route table, with what each page needs."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from console.pages import account_settings, credentials, keys, overview, security, sign_in, sso
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


PAGES: Final[Sequence[PageRoute]] = (
    PageRoute("GET", "/", overview.show),
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
    PageRoute("POST", "/keys/{key_id}/name", keys.rename),
    PageRoute("POST", "/keys/{key_id}/limits", keys.set_limits),
    PageRoute("POST", "/keys/{key_id}/rotate", keys.rotate),
    PageRoute("POST", "/keys/{key_id}/revoke", keys.revoke),
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
    PageRoute("POST", "/security/recovery-codes", security.make_recovery_codes),
    PageRoute("POST", "/security/sessions/end", security.end_sessions),
    PageRoute("POST", "/security/name", security.rename_user),
    PageRoute("GET", "/security/audit-log", security.show_events),
    PageRoute("GET", "/settings", account_settings.show),
    PageRoute("POST", "/settings/name", account_settings.rename),
    PageRoute("POST", "/settings/class", account_settings.set_class),
    PageRoute("POST", "/settings/grounding", account_settings.set_grounding),
    PageRoute("POST", "/settings/members/invite", account_settings.invite),
    PageRoute("POST", "/settings/members/cancel-invitation", account_settings.cancel_invitation),
    PageRoute("POST", "/settings/members/role", account_settings.change_role),
    PageRoute("POST", "/settings/members/remove", account_settings.remove_member),
    PageRoute("GET", "/settings/audit-log", account_settings.show_events),
)


def find_page(method: str, path: str) -> tuple[PageRoute, dict[str, Any]]:
    for page in PAGES:
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", page.path)
        match = re.fullmatch(pattern, path)
        if page.method == method and page.needs_sign_in and match:
            return page, match.groupdict()
    raise LegatoError(Reason.REQUEST_INVALID, "The form cannot be read.")
