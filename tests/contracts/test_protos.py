"""The .proto files are where their packages say, for every language that stubs are generated for."""

import re

from ruamel.yaml import YAML

from tests.contracts.product import ROOT

PROTOS = sorted((ROOT / "protos").rglob("*.proto"))


def test_buf_checks_every_rule_of_its_standard() -> None:
    """PACKAGE_DIRECTORY_MATCH is one of them."""
    config = YAML(typ="safe").load(ROOT / "buf.yaml")
    assert config["lint"] == {"use": ["STANDARD"]}
    assert config["modules"] == [{"path": "protos"}]


def test_go_package_of_each_file_is_its_folder() -> None:
    assert len(PROTOS) > 15
    for proto in PROTOS:
        folder = proto.parent.relative_to(ROOT / "protos")
        _, name, version = folder.parts
        named = re.findall(r'^option go_package = "(.*)";$', proto.read_text(), re.MULTILINE)
        assert named == [f"{folder};{name}{version}"], proto


def test_public_contract_compiles_without_ours() -> None:
    [public] = (ROOT / "protos" / "legato" / "chat").rglob("*.proto")
    imported = re.findall(r'^import (?:public )?"(.*)";$', public.read_text(), re.MULTILINE)
    assert imported
    assert [path for path in imported if not path.startswith("google/protobuf/")] == []
