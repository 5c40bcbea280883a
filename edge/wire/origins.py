"""The origins whose pages may call the service from a browser."""

import re
from typing import Final

from services.chassis.settings import SettingsError

ANY_ORIGIN: Final = "*"
# The form that browsers send: lower case, no path and no trailing slash.
_ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#A-Z]+")


def parse_origins(origins: str = ANY_ORIGIN, consoles: str = "") -> tuple[str, ...]:
    """Parses comma-separated origins; `*` allows all, an empty string none. Those of the consoles, whose playground
    calls from the browser, are always allowed."""
    given = [origin.strip() for origin in origins.split(",") if origin.strip()]
    if wrong := [origin for origin in given if not _ORIGIN.fullmatch(origin)]:
        raise SettingsError(f"LEGATO_CORS_ORIGINS: origins must be like https://app.example, not {', '.join(wrong)}")
    own = [origin.strip().rstrip("/").lower() for origin in consoles.split(",") if origin.strip()]
    if wrong := [origin for origin in own if not _ORIGIN.fullmatch(origin) or origin == ANY_ORIGIN]:
        raise SettingsError(f"LEGATO_CONSOLE_URL: origins must be like https://console.example, not {', '.join(wrong)}")
    return (*given, *own)
