"""What the last release had in its contracts is there, answers to its former name, or is known to be gone."""

import re

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


def test_no_other_message_of_the_last_release_is_gone() -> None:
    released = FileDescriptorSet.FromString((ROOT / "protos/baseline.binpb").read_bytes())
    protos = {path: path.read_text() for path in (ROOT / "protos").rglob("*.proto")}
    there = {
        f"{package}.{name}"
        for text in protos.values()
        for package in re.findall(r"^package (\S+);", text, re.MULTILINE)
        for name in re.findall(r"^message (\w+)", text, re.MULTILINE)
    }
    before = {f"{file.package}.{message.name}" for file in released.file for message in file.message_type}
    ours = {name for name in before if name.startswith("legato.")}
    assert ours - there == {
        # Auth has metering limit keys.
        "legato.auth.v1.CreateKeyAccessTokenRequest",
        "legato.auth.v1.CreateKeyAccessTokenResponse",
        "legato.metering.v1.InheritSpendLimitsRequest",
        "legato.metering.v1.InheritSpendLimitsResponse",
    }


def test_former_names_are_those_of_the_last_release_alone() -> None:
    released = (ROOT / "protos/baseline.binpb").read_bytes()
    formers = [former for service in EXPECTED if (former := former_name(service)) is not None]
    assert len(formers) == 4
    assert all(former.rpartition(".")[2].encode() in released for former in formers)
