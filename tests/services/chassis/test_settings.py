from pathlib import Path

import msgspec
import pytest

from services.chassis.settings import HttpAddress, OperationsListen, Seconds, SettingsError, load


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
    """A compose file leaves a variable that is not set empty."""
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


class ListeningSettings(msgspec.Struct, frozen=True, kw_only=True):
    listen: OperationsListen = ""
    endpoint: HttpAddress = ""
    patience_s: Seconds = 1.0
    debug: bool = False

    def check(self) -> None:
        if self.listen == self.endpoint == "":
            raise SettingsError("it would not be there")


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:65535", "host.test:9090", "unix:/run/health.sock"])
def test_address_to_listen_on_is_taken(listen: str) -> None:
    assert load(ListeningSettings, {"LEGATO_LISTEN": listen}).listen == listen


@pytest.mark.parametrize("listen", ["9090", "127.0.0.1:65536", "127.0.0.1:99999", ":9090", "host.test:http"])
def test_port_that_no_machine_has_is_a_mistake_in_words(listen: str) -> None:
    told = "LEGATO_LISTEN: must be HOST:PORT, with a port up to 65535, or unix:PATH"
    with pytest.raises(SettingsError, match=rf"^{told}$"):
        load(ListeningSettings, {"LEGATO_LISTEN": listen, "LEGATO_ENDPOINT": "http://there.test"})


@pytest.mark.parametrize("endpoint", ["http://there.test", "https://there.test:4318/otlp", "http://[::1]:4318"])
def test_address_of_a_server_is_taken(endpoint: str) -> None:
    assert load(ListeningSettings, {"LEGATO_ENDPOINT": endpoint}).endpoint == endpoint


@pytest.mark.parametrize("endpoint", ["there.test:4318", "http://", "http://there.test:99999", "ftp://there.test"])
def test_address_of_no_server_is_a_mistake_in_words(endpoint: str) -> None:
    with pytest.raises(SettingsError, match="LEGATO_ENDPOINT: must be http://HOST:PORT or https://HOST:PORT"):
        load(ListeningSettings, {"LEGATO_ENDPOINT": endpoint})


def test_time_that_no_clock_counts_to_is_a_mistake() -> None:
    with pytest.raises(SettingsError, match="LEGATO_PATIENCE_S"):
        load(ListeningSettings, {"LEGATO_PATIENCE_S": "1e30", "LEGATO_LISTEN": "127.0.0.1:0"})


def test_what_the_settings_say_of_each_other_is_looked_at_beside_what_is_wrong_with_one() -> None:
    with pytest.raises(SettingsError) as refused:
        load(ListeningSettings, {"LEGATO_DEBUG": "maybe"})
    first, second = str(refused.value).splitlines()
    assert first.startswith("LEGATO_DEBUG: ")
    assert second == "it would not be there"
