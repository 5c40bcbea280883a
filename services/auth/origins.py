"""The origins of consoles."""

from urllib.parse import urlsplit

from services.chassis.settings import SettingsError


def parse_origins(setting: str) -> list[str]:
    """Parses LEGATO_CONSOLE_URL: the consoles' origins, comma-separated."""
    origins = [origin.strip().rstrip("/") for origin in setting.split(",") if origin.strip()]
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
            raise SettingsError("LEGATO_CONSOLE_URL must be origins like https://console.example.ca, comma-separated")
    return origins
