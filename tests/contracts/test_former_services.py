"""Services whose names the last release had are there, or answer to those names."""

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from services.chassis.rpc.former_names import former_name
from tests.contracts.product import ROOT
from tests.services.chassis.rpc.expected_callers import EXPECTED


def test_every_service_of_the_last_release_is_served_under_its_name() -> None:
    released = FileDescriptorSet.FromString((ROOT / "protos/baseline.binpb").read_bytes())
    names = {f"{file.package}.{service.name}" for file in released.file for service in file.service}
    assert "legato.auth.v1.CredentialService" in names
    served = {name for service in EXPECTED for name in (service, former_name(service))}
    assert names - served == set()


def test_former_names_are_those_of_the_last_release_alone() -> None:
    released = (ROOT / "protos/baseline.binpb").read_bytes()
    formers = [former for service in EXPECTED if (former := former_name(service)) is not None]
    assert len(formers) == 4
    assert all(former.rpartition(".")[2].encode() in released for former in formers)
