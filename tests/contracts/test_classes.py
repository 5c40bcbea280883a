"""The classes that a router resolves are those that are priced, preferred and offered."""

from cli import values
from console import allowed_classes
from edge.api import chat as models
from services.auth import records
from services.metering.ledger import prices
from services.router import completion
from services.router.routing import routes


def test_every_process_knows_the_same_classes_in_the_same_order() -> None:
    assert records.CLASSES == prices.CLASSES == values.CLASSES == routes.CLASSES == allowed_classes.CLASSES


def test_edge_offers_auto_by_the_name_by_which_the_router_knows_it() -> None:
    assert models.AUTO == completion.AUTO
