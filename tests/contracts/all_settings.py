"""Whatever reads settings."""

import msgspec

from cli.backups.settings import BackupSettings
from cli.commands.service.migrate import MigrateSettings
from cli.supervision.settings import UpSettings
from cli.supervision.settings_check import kinds_of_settings

ALL_SETTINGS: tuple[type[msgspec.Struct], ...] = (*kinds_of_settings(), BackupSettings, MigrateSettings, UpSettings)
