"""Names of an account's keys, and who made them, for reports. Revoked keys are among them."""

from dataclasses import dataclass, field
from typing import Final

from console.display.words import TRANSLATIONS
from console.web.visit import Visit
from protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason

_ = TRANSLATIONS.gettext

PAGE_SIZE: Final = 1_000
# A longer list is none to choose from, and makes the page heavy; an address can have any key.
OPTIONS_MOST: Final = 200


@dataclass(frozen=True, slots=True)
class KeyNames:
    by_id: dict[str, pb.AccountKey] = field(default_factory=dict)
    # Some keys are not among them: the account has very many, or auth does not answer.
    is_partial: bool = False

    def name(self, key_id: str) -> str:
        found = self.by_id.get(key_id)
        return (found.key.name if found else "") or key_id

    def maker(self, key_id: str) -> str:
        found = self.by_id.get(key_id)
        if found is None:
            return _("Unknown")
        return found.created_by_name or (_("Former member") if found.created_by else _("Command line"))

    def options(self, chosen: str) -> list[str]:
        """Returns the keys to choose from, with the one that is chosen."""
        shown = list(self.by_id)[:OPTIONS_MOST]
        return [*shown, chosen] if chosen not in ("", "mine", *shown) else shown

    def made_by(self, user_id: str) -> list[str]:
        return [key_id for key_id, each in self.by_id.items() if each.created_by == user_id]


async def read_key_names(visit: Visit) -> KeyNames:
    """Reads the names; without auth's answer, reports have ids instead."""
    request = pb.AccountServiceListKeysRequest(
        account_id=visit.who.account_id, page_size=PAGE_SIZE, with_playground=True
    )
    try:
        listed = await visit.services.auth.read(lambda stubs: stubs.accounts.ListKeys, request, visit.token)
    except LegatoError as error:
        if error.reason is not Reason.UNAVAILABLE:
            raise
        return KeyNames(is_partial=True)
    return KeyNames({each.key.key_id: each for each in listed.keys}, bool(listed.next_page_token))


async def read_key_name(visit: Visit, key_id: str) -> KeyNames:
    """Reads the name of one key."""
    request = pb.IdentifyKeyRequest(account_id=visit.who.account_id, key_id=key_id)
    try:
        found = await visit.services.auth.read(lambda stubs: stubs.accounts.IdentifyKey, request, visit.token)
    except LegatoError as error:
        if error.reason not in (Reason.UNAVAILABLE, Reason.NOT_FOUND, Reason.REQUEST_INVALID):
            raise
        return KeyNames(is_partial=True)
    return KeyNames({key_id: found.key})
