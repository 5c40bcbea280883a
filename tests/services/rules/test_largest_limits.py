"""The largest limits are those that the messages of auth and the command line name, and a rate can hold them."""

from legato_protos.auth.v1 import auth_pb2
from services.chassis.load.gcra import Rate
from services.rules.largest_limits import LARGEST_LIMITS


def test_each_is_a_field_of_a_key_and_its_rate_is_exact() -> None:
    fields = {field.name for field in auth_pb2.UpdateKeyRequest.DESCRIPTOR.fields}
    assert LARGEST_LIMITS.keys() <= fields
    for name in ("requests_per_minute", "tokens_per_minute"):
        assert Rate(LARGEST_LIMITS[name], burst=1).interval_ns >= 1
