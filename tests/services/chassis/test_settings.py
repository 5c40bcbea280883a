from pathlib import Path

import msgspec
import pytest

from services.chassis.settings import SettingsError, load


class ExampleSettings(msgspec.Struct, frozen=True, kw_only=True):
    key_peppers: str
    data: Path = Path(".legato")
    certificate: Path | None = None
    workers: int = 1
    patience_s: float = 1.0
    debug: bool = False


def test_values_come_from_variables_and_absent_ones_from_defaults() -> None:
    settings = load(ExampleSettings, {"LEGATO_KEY_PEPPERS": "1:ab", "LEGATO_WORKERS": "3", "LEGATO_DEBUG": "1"})

    assert settings == ExampleSettings(key_peppers="1:ab", workers=3, debug=True)


def test_a_path_is_a_path() -> None:
    settings = load(ExampleSettings, {"LEGATO_KEY_PEPPERS": "1:ab", "LEGATO_DATA": "/var/lib/legato"})

    assert settings.data == Path("/var/lib/legato")


def test_an_empty_path_is_none(tmp_path: Path) -> None:
    """As in a compose file, where a variable that nobody has set is empty."""
    file = tmp_path / "settings.toml"
    file.write_text('certificate = "/etc/certificate.pem"\n')

    settings = load(
        ExampleSettings,
        {"LEGATO_KEY_PEPPERS": "1:ab", "LEGATO_SETTINGS": str(file), "LEGATO_DATA": "", "LEGATO_CERTIFICATE": ""},
    )

    assert (settings.data, settings.certificate) == (Path(".legato"), None)


def test_variables_stand_above_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('key_peppers = "1:file"\nworkers = 5\nsomething_of_another_service = 1\n')

    settings = load(ExampleSettings, {"LEGATO_SETTINGS": str(file), "LEGATO_KEY_PEPPERS": "1:variable"})

    assert (settings.key_peppers, settings.workers) == ("1:variable", 5)


def test_a_secret_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "peppers"
    file.write_text("1:ab\n")

    settings = load(ExampleSettings, {"LEGATO_KEY_PEPPERS_FILE": str(file)})

    assert settings.key_peppers == "1:ab"


def test_a_secret_in_two_places_or_in_no_readable_file_is_a_mistake_and_not_quoted(tmp_path: Path) -> None:
    secret, picture = tmp_path / "peppers", tmp_path / "picture"
    secret.write_text("hunter2")
    picture.write_bytes(b"hunter2\xff")
    environ = {
        "LEGATO_KEY_PEPPERS": "1:ab",
        "LEGATO_KEY_PEPPERS_FILE": str(secret),
        "LEGATO_WORKERS_FILE": str(tmp_path / "missing"),
        "LEGATO_DEBUG_FILE": str(picture),
    }

    with pytest.raises(SettingsError) as refused:
        load(ExampleSettings, environ)

    assert [line.partition(" ")[0] for line in str(refused.value).splitlines()] == [
        "LEGATO_KEY_PEPPERS",
        "LEGATO_WORKERS_FILE:",
        "LEGATO_DEBUG_FILE:",
    ]
    assert "hunter2" not in str(refused.value)


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as refused:
        load(ExampleSettings, {"LEGATO_WORKERS": "many", "LEGATO_DEBUG": "perhaps"})

    lines = str(refused.value).splitlines()
    assert [line.partition(":")[0].partition(" ")[0] for line in lines] == [
        "LEGATO_KEY_PEPPERS",
        "LEGATO_WORKERS",
        "LEGATO_DEBUG",
    ]


def test_mistakes_in_the_file_are_named_like_those_in_variables(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('key_peppers = 7\ndata = 7\nworkers = "many"\n')

    with pytest.raises(SettingsError) as refused:
        load(ExampleSettings, {"LEGATO_SETTINGS": str(file)})

    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        "LEGATO_KEY_PEPPERS",
        "LEGATO_DATA",
        "LEGATO_WORKERS",
    ]


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_number_is_finite_wherever_it_comes_from(tmp_path: Path, number: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f"patience_s = {number}\n")
    peppers = {"LEGATO_KEY_PEPPERS": "1:ab"}

    for environ in ({"LEGATO_PATIENCE_S": number}, {"LEGATO_SETTINGS": str(file)}):
        with pytest.raises(SettingsError, match="LEGATO_PATIENCE_S: Expected a finite number"):
            load(ExampleSettings, peppers | environ)


def test_a_wrong_value_is_not_quoted() -> None:
    with pytest.raises(SettingsError) as refused:
        load(ExampleSettings, {"LEGATO_KEY_PEPPERS": "1:ab", "LEGATO_WORKERS": "hunter2"})

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("text", [None, "workers = \nhunter2"], ids=["missing", "malformed"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "settings.toml"
    if text is not None:
        file.write_text(text)

    with pytest.raises(SettingsError, match="LEGATO_SETTINGS") as refused:
        load(ExampleSettings, {"LEGATO_SETTINGS": str(file)})

    assert "hunter2" not in str(refused.value)
