"""Runs the router (`python -m services.router`), which sends each chat to a model of its class."""

from services.chassis.process.run import run
from services.chassis.process.serving import serving
from services.chassis.settings import load
from services.router.grounding.settings import GroundingSettings
from services.router.prompts import tokens
from services.router.routes.routes import load_routes
from services.router.service import RouterService
from services.router.settings import RouterSettings

STOP_GRACE_S = 0.5


async def main() -> None:
    settings, grounding_settings = load(RouterSettings), load(GroundingSettings)
    routes = load_routes(settings.routes, timeouts=settings.timeouts)
    # Loads the tokenizer before the first chat waits for it.
    tokens.counter()
    async with serving("router", settings) as process:
        router = RouterService(routes, settings, grounding_settings, process)
        await process.serve_rpcs(router.servicers, drain=router.drain, drain_s=settings.drain_s, grace_s=STOP_GRACE_S)


if __name__ == "__main__":
    run("router", main)
