import json
from importlib.metadata import version

from click.testing import CliRunner

from cli.main import legato


def test_the_version_is_that_of_the_package() -> None:
    assert json.loads(CliRunner().invoke(legato, ["version", "--json"]).stdout) == {"version": version("legato")}
    assert CliRunner().invoke(legato, ["version"]).stdout == f"legato {version('legato')}\n"
