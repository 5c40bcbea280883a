"""All pages of the console: one route table, with what each page needs."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from console.pages import (
    account_settings,
    credit,
    documents,
    keys,
    memory,
    overview,
    preview,
    requests,
    security,
    sign_in,
    usage,
)
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
    # Its form has a file, which is read as it arrives.
    has_upload: bool = False


PAGES: Final[Sequence[PageRoute]] = (
    PageRoute("GET", "/", overview.show),
    PageRoute("POST", "/first-key", overview.create_key),
    PageRoute("GET", "/sign-in", sign_in.show, needs_sign_in=False),
    PageRoute("POST", "/sign-in", sign_in.with_link, needs_sign_in=False),
    PageRoute("POST", "/sign-in/recovery-code", sign_in.with_recovery_code, needs_sign_in=False),
    PageRoute("POST", "/sign-in/passkey/start", sign_in.start_passkey, needs_sign_in=False, is_json=True),
    PageRoute("POST", "/sign-in/passkey", sign_in.with_passkey, needs_sign_in=False),
    PageRoute("POST", "/sign-out", sign_in.sign_out, needs_sign_in=False),
    PageRoute("GET", "/invitation", sign_in.show_invitation, needs_sign_in=False),
    PageRoute("POST", "/invitation", sign_in.view_invitation, needs_sign_in=False),
    PageRoute("POST", "/invitation/accept", sign_in.accept_invitation, needs_sign_in=False),
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
    PageRoute("GET", "/usage", usage.show),
    PageRoute("GET", "/usage.csv", usage.download),
    PageRoute("GET", "/requests", requests.show),
    PageRoute("GET", "/requests.csv", requests.download),
    PageRoute("GET", "/requests/{request_id}", requests.show_one),
    PageRoute("GET", "/credit", credit.show),
    PageRoute("GET", "/credit.csv", credit.download),
    PageRoute("GET", "/credit/entries", credit.show_entries),
    PageRoute("POST", "/credit/verify", credit.verify),
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
    PageRoute("GET", "/security", security.show),
    PageRoute("GET", "/security/passkeys/new", security.show_new_passkey),
    PageRoute("POST", "/security/passkeys/start", security.start_passkey, is_json=True),
    PageRoute("POST", "/security/passkeys", security.add_passkey),
    PageRoute("POST", "/security/passkeys/name", security.rename_passkey),
    PageRoute("POST", "/security/passkeys/remove", security.remove_passkey),
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
