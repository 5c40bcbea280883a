"""What the fake metering knows of spend limits."""

from typing import Any

from protos.metering.v1 import spend_limits_pb2 as pb
from services.chassis.errors import LegatoError, Reason

PERIODS = ("day", "month", "total")


class SpendFakes:
    """Limits and what was spent, by key; that of the whole account has none."""

    def reset_spends(self) -> None:
        self.spends: dict[str, pb.Spend] = {}
        self.allowed_classes: list[str] | None = None

    def add_spend(self, key_id: str, **nanos: int) -> pb.Spend:
        """Adds limits (`day`) and what was spent of them (`day_spent`), in nano-dollars."""
        spend = self.spends.setdefault(key_id, pb.Spend(key_id=key_id, held_nanos=nanos.pop("held", 0)))
        for name, amount in nanos.items():
            setattr(spend if name.endswith("_spent") else spend.limits, f"{name}_nanos", amount)
        return spend

    def require_recent(self) -> None:
        raise NotImplementedError

    def ListSpendLimits(self, request: Any) -> Any:
        wanted = ("", *request.key_ids) if request.key_ids else tuple(self.spends)
        return pb.ListSpendLimitsResponse(spends=[self.spends[key] for key in sorted(wanted) if key in self.spends])

    def SetSpendLimits(self, request: Any) -> Any:
        self.require_recent()
        whole = self.spends[""].limits if "" in self.spends else pb.SpendLimits()
        for name in (f"{period}_nanos" for period in PERIODS):
            is_above = getattr(request.limits, name) > getattr(whole, name)
            if request.key_id and whole.HasField(name) and is_above:  # type: ignore[arg-type]
                raise LegatoError(
                    Reason.REQUEST_INVALID,
                    "The daily spend limit of a key cannot exceed the account's.",
                    param="limits",
                )
        spend = self.spends.setdefault(request.key_id, pb.Spend(key_id=request.key_id))
        spend.limits.CopyFrom(request.limits)
        return pb.SetSpendLimitsResponse(spend=spend)

    def InheritSpendLimits(self, request: Any) -> Any:
        if request.replaced_key_id not in self.spends:
            return pb.InheritSpendLimitsResponse()
        spend = self.spends.setdefault(request.key_id, pb.Spend(key_id=request.key_id))
        spend.limits.CopyFrom(self.spends[request.replaced_key_id].limits)
        return pb.InheritSpendLimitsResponse(spend=spend)
