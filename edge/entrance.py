"""Who may come in: every endpoint asks here first, and nowhere else."""

from edge.asgi import HttpScope
from edge.metering import Metering
from edge.principals import Principal, Principals, Scope
from edge.strangers import Strangers
from services.chassis.errors import LegatoError, Reason


class Entrance:
    def __init__(self, principals: Principals, strangers: Strangers, metering: Metering) -> None:
        self._principals = principals
        self._strangers = strangers
        self._metering = metering

    async def identify(self, scope: HttpScope, needed: "Scope.ValueType") -> Principal:
        """Whose key it is, and that it may do this. Wrong keys are counted by where they come from."""
        try:
            principal = await self._principals.authenticate(scope["headers"])
        except LegatoError as error:
            if error.reason is Reason.KEY_INVALID:
                self._strangers.count(scope)
            raise
        principal.require(needed)
        return principal

    async def admit(self, scope: HttpScope, needed: "Scope.ValueType") -> Principal:
        """And takes one request from the key's rate."""
        principal = await self.identify(scope, needed)
        await self._metering.admit(principal)
        return principal
