"""Settings of grounding, all of which is off by default."""

from pathlib import Path
from typing import Annotated

import msgspec

from services.chassis.http_client.origin import has_host
from services.chassis.settings import PostgresAddress, Seconds, SettingsError
from services.chassis.versioned_secrets import parse_versioned_secrets
from services.rules.residency import DataStore

KEY_VARIABLE = "LEGATO_GROUNDING_KEY"

Positive = Annotated[int, msgspec.Meta(ge=1)]


class GroundingSettings(msgspec.Struct, frozen=True, kw_only=True):
    data: Path = Path(".legato")
    data_region: str = ""
    database_url: PostgresAddress = ""
    database_region: str = ""
    migrate_at_start: bool = True
    # Whether accounts can store notes and documents for their chats.
    memory: bool = False
    attachments: bool = False
    # Encryption keys as `VERSION:HEX`, separated by commas.
    grounding_key: str = ""
    # Token budgets of notes and passages in a prompt.
    memory_tokens: Positive = 512
    attachment_tokens: Positive = 2048
    # Limits per document.
    attachment_bytes: Positive = 10 * 1024 * 1024
    attachment_pages: Positive = 1000
    # Disk space for documents of all accounts that are being added.
    upload_bytes: Positive = 256 * 1024 * 1024
    # Address of SearXNG, for instance http://127.0.0.1:8888; empty disables search.
    search_url: str = ""
    search_timeout_s: Seconds = 5.0
    # How often a model may search before it must answer.
    search_rounds: Positive = 3

    @property
    def has_store(self) -> bool:
        return self.memory or self.attachments

    @property
    def stores(self) -> list[DataStore]:
        if not self.has_store:
            return []
        return [DataStore("DATA", self.data_region), DataStore("DATABASE", self.database_region, self.database_url)]

    def check(self) -> None:
        mistakes = [mistake for store in self.stores if (mistake := store.mistake())]
        if self.has_store and not self.grounding_key:
            mistakes.append(f"{KEY_VARIABLE} is not set: LEGATO_MEMORY and LEGATO_ATTACHMENTS need it")
        if self.attachments and self.upload_bytes < self.attachment_bytes:
            mistakes.append("LEGATO_UPLOAD_BYTES must be at least LEGATO_ATTACHMENT_BYTES: the space for one document")
        if self.search_url and not self.search_url.startswith(("http://", "https://")):
            mistakes.append("LEGATO_SEARCH_URL must start with http:// or https://")
        elif self.search_url and not has_host(self.search_url):
            mistakes.append("LEGATO_SEARCH_URL must name a host, and a valid port if any")
        if self.grounding_key:
            try:
                parse_versioned_secrets(KEY_VARIABLE, self.grounding_key)
            except SettingsError as error:
                mistakes.append(str(error))
        if mistakes:
            raise SettingsError("\n".join(mistakes))
