"""The routes file: what it gives, and how its mistakes are told."""

import os
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from services.chassis.settings import SettingsError
from services.router.routes.routes import DEFAULT_PATH, load_routes
from services.rules.model_classes import CLASSES

GOOD = """
[providers.host]
kind = "openai"
base_url = "https://host.test/v1"
zero_retention = true
api_key_env = "HOST_KEY"
body = { provider = { zdr = true } }

[providers.bundled]
kind = "local"

[models.big]
provider = "host"
name = "vendor/big"
context_tokens = 1000
max_output_tokens = 100

[models.small]
provider = "bundled"
name = "small"
context_tokens = 500
max_output_tokens = 50

[classes.mezzo]
models = ["big"]
[classes.forte]
models = ["big"]
[classes.fortissimo]
models = ["big", "small"]
"""


@pytest.fixture
def routes_file(tmp_path: Path) -> Path:
    return tmp_path / "routes.toml"


def mistakes_of(path: Path, text: str) -> list[str]:
    path.write_text(text)
    with pytest.raises(SettingsError) as refusal:
        load_routes(path, {"HOST_KEY": "secret"})
    return [line.removeprefix(f"{path}: ") for line in str(refusal.value).splitlines()]


def test_models_of_a_class_are_given_in_the_order_they_are_tried(routes_file: Path) -> None:
    routes_file.write_text(GOOD)
    routes = load_routes(routes_file, {"HOST_KEY": "secret"})
    assert [target.model_name for target in routes.classes["fortissimo"].targets] == ["vendor/big", "small"]
    assert routes.classes["fortissimo"].targets[1].context_tokens == 500


def test_provider_has_its_secret_from_the_environment_and_does_not_show_it(routes_file: Path) -> None:
    routes_file.write_text(GOOD)
    host = load_routes(routes_file, {"HOST_KEY": "secret"}).providers["host"]
    assert host.api_key == "secret"
    assert "secret" not in repr(host)
    assert host.extra_json == b'{"provider":{"zdr":true}}'


def test_provider_has_its_secret_from_a_file_that_the_environment_names(routes_file: Path, tmp_path: Path) -> None:
    routes_file.write_text(GOOD)
    (tmp_path / "key").write_text("secret\n")

    assert load_routes(routes_file, {"HOST_KEY_FILE": str(tmp_path / "key")}).providers["host"].api_key == "secret"


def test_version_tells_what_the_file_says_and_not_how(routes_file: Path) -> None:
    def version(text: str, secret: str = "secret") -> str:
        routes_file.write_text(text)
        return load_routes(routes_file, {"HOST_KEY": secret}).version

    first = version(GOOD)
    assert len(first) == 12
    providers, models = GOOD.index("[providers.host]"), GOOD.index("[models.big]")
    same = f"# For autumn.\n{GOOD[models:]}\n{GOOD[providers:models]}"
    assert [version(same), version(GOOD, "another key")] == [first, first]
    text = routes_file.parent / "own.md"
    text.write_text("Be brief.")
    own_character = f'character = "own.md"\n{GOOD}'
    changed = [version(GOOD.replace("= 1000", "= 1001")), version(own_character)]
    text.write_text("Be very brief.")
    assert len({first, *changed, version(own_character)}) == 4


def test_servers_that_are_particular_can_be_named(routes_file: Path) -> None:
    particulars = "no_store = false\nshort_call_ids = true\nstring_content = true\nprompt_cache_key = true\n"
    routes_file.write_text(GOOD.replace("zero_retention", particulars + "zero_retention"))
    host = load_routes(routes_file, {"HOST_KEY": "secret"}).providers["host"]
    assert (host.no_store, host.short_call_ids, host.string_content, host.prompt_cache_key) == (False, True, True, True)


@pytest.mark.parametrize(
    ("kind", "version"), [("anthropic", "2026-10-21"), ("anthropic", "2023-06-01"), ("gemini", "v1")]
)
def test_version_of_an_interface_is_pinned(kind: str, version: str, routes_file: Path) -> None:
    routes_file.write_text(GOOD.replace('kind = "openai"', f'kind = "{kind}"\nversion = "{version}"'))
    host = load_routes(routes_file, {"HOST_KEY": "secret"}).providers["host"]
    assert (host.kind, host.version) == (kind, version)


def test_caching_can_be_switched_off_and_cache_keys_are_sent_where_they_are_known(routes_file: Path) -> None:
    kind = 'kind = "anthropic"\nversion = "2026-10-21"'
    for more, is_on in (("", True), ("\nprompt_caching = false", False)):
        routes_file.write_text(GOOD.replace('kind = "openai"', kind + more))
        host = load_routes(routes_file, {"HOST_KEY": "secret"}).providers["host"]
        assert (host.prompt_caching, host.prompt_cache_key) == (is_on, False)
    base_url = re.search('base_url = "([^"]*)"', GOOD)
    assert base_url is not None
    for host_url, more, is_sent in (
        (base_url[1], "", False),
        ("https://api.mistral.ai/v1", "", True),
        ("https://api.mistral.ai/v1", "\nprompt_cache_key = false", False),
    ):
        text = GOOD.replace(base_url[1], host_url).replace('kind = "openai"', f'kind = "openai"{more}')
        routes_file.write_text(text.replace("zero_retention", AGREED))
        host = load_routes(routes_file, {"HOST_KEY": "secret"}).providers["host"]
        assert host.prompt_cache_key == is_sent


AGREED = 'evidence = "4711"\nuntil = 2999-12-31\nzero_retention'


@pytest.mark.parametrize(
    ("base_url", "output_field", "no_store", "always_max_tokens"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens", True, False),
        ("https://ours.openai.azure.com/openai/v1?api-version=preview", "max_completion_tokens", True, False),
        ("http://vllm:8000/v1", "max_tokens", True, False),
        ("https://openrouter.ai/api/v1", "max_tokens", True, True),
        ("https://api.cerebras.ai/v1", "max_tokens", False, True),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "max_tokens", False, True),
        ("https://api.vendor.com/v1", "max_tokens", False, True),
    ],
)
def test_what_a_host_takes_is_known_by_its_name_unless_the_file_says_otherwise(
    base_url: str, output_field: str, no_store: bool, always_max_tokens: bool, routes_file: Path
) -> None:
    text = GOOD.replace("https://host.test/v1", base_url).replace("zero_retention", AGREED)
    routes_file.write_text(text)
    host = load_routes(routes_file, {"HOST_KEY": "secret"}).providers["host"]
    assert (host.base_url, host.output_field) == (base_url, output_field)
    assert (host.no_store, host.always_max_tokens) == (no_store, always_max_tokens)
    other_field = next(name for name in ("max_tokens", "max_completion_tokens") if name != output_field)
    own = f'output_field = "{other_field}"\nno_store = {str(not no_store).lower()}\n'
    own += f"always_max_tokens = {str(not always_max_tokens).lower()}\n"
    routes_file.write_text(text.replace("evidence", own + "evidence"))
    host = load_routes(routes_file, {"HOST_KEY": "secret"}).providers["host"]
    assert (host.output_field, host.no_store, host.always_max_tokens) == (
        other_field,
        not no_store,
        not always_max_tokens,
    )


@pytest.mark.parametrize(
    ("base_url", "api"),
    [
        ("https://api.openai.com/v1", "auto"),
        ("https://eu.api.openai.com/v1", "auto"),
        ("https://ours.openai.azure.com/openai/v1", "auto"),
        ("https://ours.services.ai.azure.com/openai/v1", "auto"),
        ("https://openrouter.ai/api/v1", "chat"),
        ("http://vllm:8000/v1", "chat"),
    ],
)
def test_which_of_openais_apis_a_host_has_is_known_by_its_name_unless_the_file_says_otherwise(
    base_url: str, api: str, routes_file: Path
) -> None:
    text = GOOD.replace("https://host.test/v1", base_url).replace("zero_retention", AGREED)
    routes_file.write_text(text)
    assert load_routes(routes_file, {"HOST_KEY": "secret"}).providers["host"].api == api
    routes_file.write_text(text.replace("evidence", 'api = "responses"\nevidence'))
    assert load_routes(routes_file, {"HOST_KEY": "secret"}).providers["host"].api == "responses"
    [mistake] = mistakes_of(routes_file, text.replace("evidence", 'api = "grpc"\nevidence'))
    assert mistake == 'providers.host.api: is "grpc", but must be one of chat, responses, auto'


def test_server_of_responses_alone_is_a_kind_of_its_own(routes_file: Path) -> None:
    text = GOOD.replace('kind = "openai"', 'kind = "responses"')
    routes_file.write_text(text)
    host = load_routes(routes_file, {"HOST_KEY": "secret"}).providers["host"]
    assert (host.api, host.allowed_tools) == ("responses", True)
    for key in ('api = "chat"', 'output_field = "max_tokens"', "string_content = true"):
        [mistake] = mistakes_of(routes_file, text.replace("zero_retention", f"{key}\nzero_retention"))
        assert mistake == f"providers.host.{key.split()[0]}: is not a known key"


@pytest.mark.parametrize("api", ['kind = "responses"', 'kind = "openai"\napi = "responses"'])
def test_answer_cannot_be_continued_over_responses(api: str, routes_file: Path) -> None:
    text = GOOD.replace('kind = "openai"', api)
    base = "max_output_tokens = "
    [mistake] = mistakes_of(routes_file, text.replace(base, f"continues = true\n{base}", 1))
    assert mistake.endswith("continues: is not possible with responses")


@pytest.mark.parametrize(
    "address", ["https://me@host.test/v1", "https://me:word@host.test/v1", "https://host.test/v1#a"]
)
def test_what_would_be_dropped_of_an_address_is_a_mistake(address: str, routes_file: Path) -> None:
    [mistake] = mistakes_of(routes_file, GOOD.replace("https://host.test/v1", address))
    assert mistake == "providers.host.base_url: must have no user, no password and no fragment (#)"


def test_class_may_refuse_models_that_cut_prompts(routes_file: Path) -> None:
    routes_file.write_text(GOOD.replace("[classes.mezzo]", "[classes.mezzo]\nrefuse_cut_prompts = true"))
    classes = load_routes(routes_file, {"HOST_KEY": "secret"}).classes
    assert [name for name, route in classes.items() if route.refuse_cut_prompts] == ["mezzo"]


def test_every_mistake_is_named_at_once_by_its_key(routes_file: Path) -> None:
    text = """
    colour = "red"
    [providers.a]
    kind = "telepathy"
    [providers.b]
    kind = "openai"
    api_key = "sk-in-the-file"
    base_url = "ftp://b"
    [providers.c]
    kind = "openai"
    base_url = "http://c"
    zero_retention = false
    no_store = "no"
    api_key_env = "NOT_SET"
    speed = 3
    [providers.d]
    kind = "local"
    base_url = "http://d"
    [providers.e]
    kind = "anthropic"
    base_url = "https://e"
    zero_retention = true
    output_field = "max_tokens"
    no_store = false
    [providers.f]
    kind = "gemini"
    base_url = "https://f"
    api_key_env = "HOST_KEY"
    version = "v2"
    [models.small]
    provider = "x"
    name = ""
    context_tokens = 0
    [classes.mezzo]
    models = ["small", "large"]
    [classes.forte]
    models = []
    [classes.piano]
    models = ["small"]
    """
    assert sorted(mistakes_of(routes_file, text)) == [
        'classes.forte.models: must be a non-empty list of names',
        'classes.fortissimo: is missing',
        'classes.mezzo.models: no model named "large"',
        'classes.piano: is not a class; the classes are mezzo, forte, fortissimo',
        'colour: is not a known key',
        'models.small.context_tokens: must be a whole number above zero',
        'models.small.max_output_tokens: is missing',
        'models.small.name: must be a non-empty string',
        'models.small.provider: no provider named "x"',
        'providers.a.kind: is "telepathy", but must be one of openai, responses, anthropic, gemini, local',
        'providers.b.api_key: do not put secrets in this file: name a file in api_key_file',
        'providers.b.base_url: must start with http:// or https://',
        'providers.b.zero_retention: is missing: only providers that retain no data are used',
        'providers.c.api_key_env: the variable NOT_SET is not set',
        'providers.c.no_store: must be true or false',
        'providers.c.speed: is not a known key',
        'providers.c.zero_retention: must be true: only providers that retain no data are used',
        'providers.d.base_url: is not a known key',
        'providers.e.api_key_file: is missing',
        'providers.e.no_store: is not a known key',
        'providers.e.output_field: is not a known key',
        'providers.e.version: is missing',
        'providers.f.version: is "v2", but must be one of v1, v1beta',
        'providers.f.zero_retention: is missing: only providers that retain no data are used',
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic", "gemini"])
@pytest.mark.parametrize("declared", ["", "zero_retention = false\n", 'zero_retention = "true"\n'])
def test_provider_that_is_not_known_to_keep_nothing_stops_the_start(
    kind: str, declared: str, routes_file: Path
) -> None:
    text = GOOD.replace('kind = "openai"', f'kind = "{kind}"').replace("zero_retention = true\n", declared)
    assert any(mistake.startswith("providers.host.zero_retention: ") for mistake in mistakes_of(routes_file, text))


def test_secret_in_the_file_is_not_repeated_in_the_mistake(routes_file: Path) -> None:
    text = GOOD.replace('api_key_env = "HOST_KEY"', 'api_key = "sk-in-the-file"')
    assert "sk-in-the-file" not in "\n".join(mistakes_of(routes_file, text))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"LEGATO_ROUTES.*nowhere\.toml"):
        load_routes(tmp_path / "nowhere.toml")


def test_default_routes_lead_every_class_to_the_bundled_model() -> None:
    routes = load_routes()
    assert set(routes.classes) == set(CLASSES)
    assert routes.uses_local_model
    assert routes.bundled_classes == set(routes.classes)


def test_class_is_not_called_bundled_where_other_models_share_its_chats(routes_file: Path) -> None:
    for models, bundled in (("{ small = 1 }, { big = 1 }", {"mezzo"}), ("{ small = 1, big = 1 }", set[str]())):
        routes_file.write_text(GOOD.replace('models = ["big"]', f"tiers = [{models}]", 1))
        assert load_routes(routes_file, {"HOST_KEY": "secret"}).bundled_classes == bundled


def test_example_routes_are_good_and_need_no_bundled_model() -> None:
    example = DEFAULT_PATH.with_name("routes.example.toml")
    names = ("VLLM_API_KEY", "OPENROUTER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")
    routes = load_routes(example, dict.fromkeys(names, "secret"), today=date(2026, 11, 18))
    assert {route.kind for route in routes.providers.values()} == {"openai", "anthropic", "gemini"}
    assert not routes.uses_local_model
    assert not routes.bundled_classes


def test_bundled_model_is_not_needed_where_nothing_leads_to_it(routes_file: Path) -> None:
    routes_file.write_text(GOOD.replace('"big", "small"', '"big"'))
    assert not load_routes(routes_file, {"HOST_KEY": "secret"}).uses_local_model


def test_character_is_chosen_for_all_classes_and_for_one(routes_file: Path) -> None:
    (routes_file.parent / "kind-2.md").write_text("Be kind.\n")
    chosen = GOOD.replace("[classes.forte]", '[classes.forte]\ncharacter = "kind-2.md"')
    routes_file.write_text('character = "legato-small-1"\n' + chosen)
    characters = load_routes(routes_file, {"HOST_KEY": "secret"}).characters
    assert {name: character.version for name, character in characters.items()} == {
        "mezzo": "legato-small-1",
        "forte": "kind-2",
        "fortissimo": "legato-small-1",
    }
    assert characters["forte"].text == "Be kind."


def test_character_that_is_not_there_is_named_by_its_class(routes_file: Path) -> None:
    chosen = GOOD.replace("[classes.forte]", '[classes.forte]\ncharacter = "missing.md"')
    routes_file.write_text(chosen)
    with pytest.raises(SettingsError, match=r"classes\.forte\.character: cannot read .*missing\.md"):
        load_routes(routes_file, {"HOST_KEY": "secret"})


@pytest.fixture
def pipe() -> Iterator[Path]:
    """Gives the path of a pipe that has a text and an end: reading it does not wait."""
    reader, writer = os.pipe()
    os.write(writer, b"secret")
    os.close(writer)
    yield Path(f"/dev/fd/{reader}")
    os.close(reader)


@pytest.mark.parametrize(
    ("before", "after", "mistake"),
    [
        (
            "[classes.forte]",
            '[classes.forte]\ncharacter = "{file}.md"',
            "classes.forte.character: cannot read {file}.md: {why}",
        ),
        (
            'api_key_env = "HOST_KEY"',
            'api_key_file = "{file}"',
            "providers.host.api_key_file: cannot read {file}: {why}",
        ),
        ('"HOST_KEY"', '"OTHER_KEY"', "providers.host.api_key_env: OTHER_KEY_FILE: cannot read {file}: {why}"),
    ],
)
def test_files_that_are_named_are_small_and_regular(
    routes_file: Path, pipe: Path, before: str, after: str, mistake: str
) -> None:
    file = routes_file.with_name("named")
    file.with_suffix(".md").symlink_to(file)
    routes_file.write_text(GOOD.replace(before, after.format(file=file)))
    environ = {"HOST_KEY": "secret", "OTHER_KEY_FILE": str(file)}
    for is_large, why in ((False, "not a regular file"), (True, "larger than 1 MiB")):
        file.unlink(missing_ok=True)
        if is_large:
            file.write_text("x" * (1024 * 1024 + 1))
        else:
            file.symlink_to(pipe)
        with pytest.raises(SettingsError) as refused:
            load_routes(routes_file, environ)
        assert str(refused.value) == f"{routes_file}: {mistake.format(file=file, why=why)}"


def test_routes_file_is_itself_small_and_regular(routes_file: Path, pipe: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*: not a regular file"):
        load_routes(pipe, {"HOST_KEY": "secret"})
    routes_file.write_text(GOOD + "#" * 1024 * 1024)
    with pytest.raises(SettingsError, match=r"cannot read .*: larger than 1 MiB"):
        load_routes(routes_file, {"HOST_KEY": "secret"})
