import json

from legato_protos.chat.v1.chat_pb2 import DESCRIPTOR
from legato_protos.client.channel import service_config


def test_service_config_has_every_method_once_and_repeats_only_what_was_not_available() -> None:
    service = DESCRIPTOR.services_by_name["ChatService"]
    config = json.loads(service_config())
    named = [(name["service"], name["method"]) for method in config["methodConfig"] for name in method["name"]]
    assert sorted(named) == sorted((service.full_name, method.name) for method in service.methods)
    policies = [method["retryPolicy"] for method in config["methodConfig"]]
    assert {tuple(policy["retryableStatusCodes"]) for policy in policies} == {("UNAVAILABLE",)}
