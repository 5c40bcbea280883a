import json
from collections.abc import Iterator
from datetime import UTC, datetime

import click
import pytest

from cli.main import legato
from legato_protos.auth.v1 import auth_pb2
from legato_protos.metering.v1.spend_limits_pb2 import SpendLimits
from tests.cli.played import play


def key(
    *scopes: auth_pb2.Scope.ValueType, state: auth_pb2.KeyState.ValueType = auth_pb2.KEY_STATE_ACTIVE
) -> auth_pb2.Key:
    made = auth_pb2.Key(
        key_id="key_1", account_id="acct_1", name="laptop", scopes=scopes, state=state, pepper_version=1
    )
    made.create_time.FromDatetime(datetime(2026, 11, 15, 8, tzinfo=UTC))
    return made


def test_a_new_key_is_shown_with_its_secret() -> None:
    made = key(auth_pb2.SCOPE_INFERENCE)
    made.expire_time.FromDatetime(datetime(2026, 12, 15, 8, tzinfo=UTC))
    far_end = play(("auth", "KeyAdminService.CreateKey", auth_pb2.CreateKeyResponse(key=made, api_key="sk-legato-x")))
    result = far_end.run(
        "keys", "create", "--account", "acct_1", "--name", "laptop", "--scope", "inference", "--expires", "30", "--json"
    )
    assert json.loads(result.stdout) == {
        "key_id": "key_1",
        "account_id": "acct_1",
        "name": "laptop",
        "scopes": ["inference"],
        "classes": None,
        "expires_at": "2026-12-15T08:00:00Z",
        "state": "active",
        "created_at": "2026-11-15T08:00:00Z",
        "revoked_at": None,
        "last_used_hour": None,
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "concurrent_requests": None,
        "pepper_version": 1,
        "api_key": "sk-legato-x",
    }
    (request,) = far_end.requests
    assert (request.account_id, request.name, request.expires_after_days) == ("acct_1", "laptop", 30)
    assert list(request.scopes) == [auth_pb2.SCOPE_INFERENCE]


def test_a_key_is_created_with_all_that_limits_it() -> None:
    limits = SpendLimits(day_nanos=2_500_000_000, total_nanos=40_000_000_000)
    made = auth_pb2.CreateKeyResponse(key=key(), api_key="sk-legato-x", spend_limits=limits)
    far_end = play(("auth", "KeyAdminService.CreateKey", made))
    given = ("--day", "2.50", "--total", "40", "--requests-per-minute", "60", "--classes", "mezzo")
    result = far_end.run("keys", "create", "--account", "acct_1", *given, "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert (shown["spend_day_usd"], shown["spend_total_usd"], shown["api_key"]) == ("2.50", "40.00", "sk-legato-x")
    (request,) = far_end.requests
    assert (request.spend_limits, request.requests_per_minute) == (limits, 60)
    assert not request.HasField("tokens_per_minute")
    assert list(request.allowed_classes.class_ids) == ["mezzo"]


def test_a_key_that_an_older_auth_has_not_limited_is_not_shown() -> None:
    far_end = play(("auth", "KeyAdminService.CreateKey", auth_pb2.CreateKeyResponse(key=key(), api_key="sk-legato-x")))
    result = far_end.run("keys", "create", "--account", "acct_1", "--day", "2.50")
    assert result.exit_code == 1
    assert "revoke key_1" in result.stderr
    assert "sk-legato-x" not in result.output


@pytest.mark.parametrize(
    "given",
    [["--scope", "models", "--scope", "usage"], ["--scope", "models,usage"], ["--scope", "models,usage,models"]],
)
def test_several_scopes_are_given_by_repeating_or_with_commas(given: list[str]) -> None:
    far_end = play(("auth", "KeyAdminService.CreateKey", auth_pb2.CreateKeyResponse(key=key(), api_key="sk")))
    far_end.run("keys", "create", "--account", "acct_1", *given)
    assert list(far_end.requests[0].scopes) == [auth_pb2.SCOPE_MODELS, auth_pb2.SCOPE_USAGE]


def test_a_key_made_without_scopes_or_expiry_may_do_everything_for_ever() -> None:
    far_end = play(("auth", "KeyAdminService.CreateKey", auth_pb2.CreateKeyResponse(key=key(), api_key="sk")))
    shown = json.loads(far_end.run("keys", "create", "--account", "acct_1", "--json").stdout)
    assert shown["scopes"] == ["inference", "models", "usage"]
    assert shown["expires_at"] is None
    assert not far_end.requests[0].scopes
    assert not far_end.requests[0].HasField("expires_after_days")


def test_every_page_of_keys_is_listed_without_secrets() -> None:
    far_end = play(
        ("auth", "KeyAdminService.ListKeys", auth_pb2.ListKeysResponse(keys=[key()], next_page_token="more")),
        (
            "auth",
            "KeyAdminService.ListKeys",
            auth_pb2.ListKeysResponse(
                keys=[key(state=auth_pb2.KEY_STATE_REVOKED), key(state=auth_pb2.KEY_STATE_EXPIRED)]
            ),
        ),
    )
    listed = json.loads(far_end.run("keys", "list", "--account", "acct_1", "--json").stdout)
    assert [one["state"] for one in listed] == ["active", "revoked", "expired"]
    assert not any("api_key" in one for one in listed)
    assert far_end.requests[1].page_token == "more"


def test_a_revoked_key_is_shown_as_revoked() -> None:
    revoked = key(state=auth_pb2.KEY_STATE_REVOKED)
    revoked.revoke_time.FromDatetime(datetime(2026, 11, 15, 9, tzinfo=UTC))
    far_end = play(("auth", "KeyAdminService.RevokeKey", auth_pb2.RevokeKeyResponse(key=revoked)))
    shown = json.loads(far_end.run("keys", "revoke", "key_1", "--json").stdout)
    assert (shown["state"], shown["revoked_at"]) == ("revoked", "2026-11-15T09:00:00Z")
    assert far_end.requests[0].key_id == "key_1"


def test_last_use_is_shown_by_the_hour_and_limits_where_a_key_has_some() -> None:
    used, limited = key(), key()
    used.last_use_time.FromDatetime(datetime(2026, 11, 15, 9, tzinfo=UTC))
    limited.tokens_per_minute = 1000
    far_end = play(("auth", "KeyAdminService.ListKeys", auth_pb2.ListKeysResponse(keys=[used, limited])))
    headers, first, second = far_end.run("keys", "list", "--account", "acct_1").stdout.splitlines()
    assert headers.split() == [*SHOWN_ALWAYS, "tokens_per_minute"]
    assert first.split()[-2:] == ["2026-11-15T09:00:00Z", "-"]
    assert second.split()[-2:] == ["-", "1000"]


SHOWN_ALWAYS = ["key_id", "name", "state", "scopes", "expires_at", "created_at", "last_used_hour"]


def test_keys_without_limits_of_their_own_need_no_columns_for_them() -> None:
    far_end = play(("auth", "KeyAdminService.ListKeys", auth_pb2.ListKeysResponse(keys=[key()])))
    assert far_end.run("keys", "list", "--account", "acct_1").stdout.splitlines()[0].split() == SHOWN_ALWAYS


def test_only_the_limits_that_are_given_are_set() -> None:
    limited = key()
    limited.concurrent_requests = 3
    far_end = play(("auth", "KeyAdminService.UpdateKey", auth_pb2.UpdateKeyResponse(key=limited)))
    result = far_end.run("keys", "set", "key_1", "--concurrent-requests", "3", "--tokens-per-minute", "0", "--json")
    assert json.loads(result.stdout)["concurrent_requests"] == 3
    assert far_end.requests == [auth_pb2.UpdateKeyRequest(key_id="key_1", concurrent_requests=3, tokens_per_minute=0)]


def test_keys_are_counted_by_pepper() -> None:
    counts = [auth_pb2.PepperCount(pepper_version=1, keys=2), auth_pb2.PepperCount(pepper_version=2, keys=5)]
    counts[1].last_use_time.FromDatetime(datetime(2026, 11, 15, 9, tzinfo=UTC))
    far_end = play(
        ("auth", "KeyAdminService.CountKeysByPepper", auth_pb2.CountKeysByPepperResponse(counts=counts)),
    )
    assert json.loads(far_end.run("keys", "peppers", "--json").stdout) == [
        {"pepper_version": 1, "keys": 2, "last_used_hour": None},
        {"pepper_version": 2, "keys": 5, "last_used_hour": "2026-11-15T09:00:00Z"},
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["set"],
        ["set", "key_1"],
        ["set", "key_1", "--requests-per-minute", "-1"],
        ["create"],
        ["create", "--account", "acct_1", "--scope", "everything"],
        ["create", "--account", "acct_1", "--expires", "31"],
        ["list"],
        ["revoke"],
    ],
)
def test_misuse_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    result = play().run("keys", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("legato: ")
    assert result.stderr.count("\n") == 1


def test_no_command_takes_a_key_where_others_on_the_machine_can_see_it() -> None:
    """Arguments of a process are for everyone to read; keys are shown, and given to clients in headers."""
    taken = {parameter.name for command in every_command(legato) for parameter in command.params}
    assert "key_id" in taken
    assert not [name for name in taken if name and ("secret" in name or name in ("key", "api_key", "token"))]


def every_command(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from every_command(found)


def test_a_key_is_shown_with_its_owner() -> None:
    account = auth_pb2.Account(account_id="acct_1", name="Acme")
    found = auth_pb2.GetKeyResponse(key=key(), account=account)
    found.key.created_by = "user_a"
    far_end = play(("auth", "KeyAdminService.GetKey", found))
    shown = json.loads(far_end.run("keys", "show", "key_1", "--json").stdout)
    assert (shown["account_id"], shown["account_name"], shown["created_by"]) == ("acct_1", "Acme", "user_a")
    assert shown["caller"] is None
    assert far_end.requests[0].key_id == "key_1"


def test_a_key_is_made_for_some_classes() -> None:
    made = key()
    made.allowed_classes.class_ids.append("mezzo")
    far_end = play(("auth", "KeyAdminService.CreateKey", auth_pb2.CreateKeyResponse(key=made, api_key="sk")))
    shown = json.loads(far_end.run("keys", "create", "--account", "acct_1", "--classes", "mezzo", "--json").stdout)
    assert shown["classes"] == ["mezzo"]
    assert list(far_end.requests[0].allowed_classes.class_ids) == ["mezzo"]


def test_a_key_may_use_all_of_the_accounts_classes_again() -> None:
    far_end = play(("auth", "KeyAdminService.UpdateKey", auth_pb2.UpdateKeyResponse(key=key())))
    assert json.loads(far_end.run("keys", "set", "key_1", "--classes", "all", "--json").stdout)["classes"] is None
    assert far_end.requests[0].allow_all_classes


@pytest.mark.parametrize("classes", ["piano", "auto", "", "mezzo,gpt-4"])
def test_only_classes_on_offer_can_be_allowed(classes: str) -> None:
    assert play().run("keys", "set", "key_1", "--classes", classes).exit_code == 2


def test_keys_that_were_not_used_are_listed() -> None:
    for given, expected in ((["--unused", "0"], (True, 0)), (["--unused", "90"], (True, 90)), ([], (False, 0))):
        far_end = play(("auth", "KeyAdminService.ListKeys", auth_pb2.ListKeysResponse(keys=[key()])))
        far_end.run("keys", "list", "--account", "acct_1", *given)
        [request] = far_end.requests
        assert (request.HasField("unused_for_days"), request.unused_for_days) == expected
