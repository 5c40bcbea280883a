"""Whatever reads settings."""

import msgspec

from cli.commands.service.migrate import MigrateSettings
from cli.mistakes import kinds_of_settings
from cli.supervision.settings import UpSettings

ALL_SETTINGS: tuple[type[msgspec.Struct], ...] = (*kinds_of_settings(), MigrateSettings, UpSettings)
