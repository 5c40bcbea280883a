"""Whatever reads settings."""

from cli.migrate import MigrateSettings
from cli.settings import CommandSettings
from cli.up import UpSettings
from edge.settings import EdgeSettings
from services.auth.__main__ import AuthSettings
from services.metering.settings import MeteringSettings
from services.router.__main__ import RouterSettings
from services.router.grounding.settings import GroundingSettings
from services.router.local_model import LocalModelSettings

ALL_SETTINGS = (
    AuthSettings,
    CommandSettings,
    EdgeSettings,
    GroundingSettings,
    LocalModelSettings,
    MeteringSettings,
    MigrateSettings,
    RouterSettings,
    UpSettings,
)
