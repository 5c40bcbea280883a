"""Whatever reads settings."""

import msgspec

from cli.commands.service.migrate import MigrateSettings
from cli.commands.service.up import UpSettings
from cli.mistakes import kinds_of_settings

ALL_SETTINGS: tuple[type[msgspec.Struct], ...] = (*kinds_of_settings(), MigrateSettings, UpSettings)
