import asyncio
import json
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.commands.service import routes as routes_command
from cli.main import legato
from legato_protos.router.v1 import router_pb2, router_pb2_grpc
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.router.routes.retention_promise import utc_today
from services.router.routes.routes import DEFAULT_PATH, load_routes
from tests.cli.played import play
from tests.services.router.routes.test_routes import GOOD

BIG = router_pb2.Target(
    class_id="forte",
    provider="host",
    model_name="vendor/big",
    breaker_state=router_pb2.BREAKER_STATE_HALF_OPEN,
    attempts=12,
    failures=5,
    recent_calls=4,
    recent_failures=1,
    median_latency_s=0.2504,
    running=3,
    limit=8,
    share=5,
    canary=router_pb2.Canary(percent=5, is_rolled_back=True),
    tier=1,
    weight=70,
    promise_until="2026-11-01",
    other_region="eastus",
    cuts_prompts_from_tokens=5000,
    learned=["efforts low/high"],
    credentials="client_credentials legato at login.example.com",
    credentials_failure="login.example.com answered with status 500",
)
SPARE = router_pb2.Target(
    class_id="forte",
    provider="other",
    model_name="spare",
    breaker_state=router_pb2.BREAKER_STATE_CLOSED,
    tier=2,
    weight=1,
    promise_until="2999-12-31",
)
VERSION = "0123456789ab"
LISTED = router_pb2.ListTargetsResponse(targets=[BIG, SPARE], version=VERSION)
STAGED = router_pb2.ListTargetsResponse(file_version=VERSION)
OLD = router_pb2.ModelOutcomes(
    class_id="forte",
    role=router_pb2.CALL_ROLE_BASELINE,
    provider="host",
    model_name="old",
    calls=1000,
    answers=1000,
    first_token_s=router_pb2.Distribution(bounds=[0.5, 1], counts=[1000, 0, 0]),
    prompt_tokens=70_000,
    completion_tokens=9000,
    finish_reasons={"stop": 990, "length": 10},
)
NEW = router_pb2.ModelOutcomes(
    class_id="forte",
    role=router_pb2.CALL_ROLE_CANARY,
    provider="other",
    model_name="new",
    calls=100,
    answers=90,
    failures=12,
    errors={"cut": 7, "provider": 3},
    first_token_s=router_pb2.Distribution(bounds=[0.5, 1], counts=[0, 97, 0]),
    finish_reasons={"tool_calls": 90},
    tool_calls=100,
    valid_tool_calls=98,
)
OUTCOMES = router_pb2.ListOutcomesResponse(outcomes=[OLD, NEW])
CLOUD = """
[providers.cloud]
kind = "openai"
base_url = "http://cloud.test/v1"
zero_retention = true
credentials = { source = "token_file", file = "token" }
[models.big]
provider = "cloud"
name = "vendor/big"
context_tokens = 1000
max_output_tokens = 100
[classes.mezzo]
models = ["big"]
[classes.forte]
models = ["big"]
[classes.fortissimo]
models = ["big"]
"""
LIST_OUTCOMES = "RouteAdminService.ListOutcomes"
LIST_TARGETS = "RouteAdminService.ListTargets"
RELOAD_ROUTES = "RouteAdminService.ReloadRoutes"
MISTAKES = "routes.toml: colour: is not a known key\nroutes.toml: classes.forte: is missing"


def test_models_are_shown_with_how_they_do() -> None:
    result = play(("router", LIST_TARGETS, LISTED)).run("routes", "show", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [
        {
            "router": "router",
            "class": "forte",
            "tier": 1,
            "weight": 70,
            "provider": "host",
            "model": "vendor/big",
            "canary": "rolled back",
            "breaker": "half-open",
            "attempts": 12,
            "failures": 5,
            "recent_calls": 4,
            "recent_failures": 1,
            "latency_ms": 250.4,
            "running": 3,
            "limit": 8,
            "share": 5,
            "routes_version": VERSION,
            "file_version": VERSION,
            "promise_until": "2026-11-01",
            "other_region": "eastus",
            "cuts_prompts_from_tokens": 5000,
            "credentials": "client_credentials legato at login.example.com",
            "credentials_failure": "login.example.com answered with status 500",
            "learned": ["efforts low/high"],
            "notes": [
                "zero retention is promised until 2026-11-01",
                "its certificate names eastus",
                "credentials: login.example.com answered with status 500",
                "refusals told: efforts low/high",
                "cuts prompts from 5000 tokens on",
            ],
        },
        {
            "router": "router",
            "class": "forte",
            "tier": 2,
            "weight": 1,
            "provider": "other",
            "model": "spare",
            "canary": None,
            "breaker": "closed",
            "attempts": 0,
            "failures": 0,
            "recent_calls": None,
            "recent_failures": None,
            "latency_ms": None,
            "running": 0,
            "limit": None,
            "share": None,
            "routes_version": VERSION,
            "file_version": VERSION,
            "promise_until": "2999-12-31",
            "other_region": None,
            "cuts_prompts_from_tokens": None,
            "credentials": None,
            "credentials_failure": None,
            "learned": [],
            "notes": [],
        },
    ]


def test_people_see_a_line_for_each_model() -> None:
    lines = play(("router", LIST_TARGETS, LISTED)).run("routes", "show").stdout.splitlines()
    assert lines[0].split() == [
        "class", "tier", "weight", "provider", "model",
        "canary", "breaker", "attempts", "failures", "recent_calls", "recent_failures",
        "latency_ms", "running", "limit", "share", "routes_version", "notes",
    ]  # fmt: skip
    shown = ["forte", "2", "1", "other", "spare", "-", "closed", "0", "0", "-", "-", "-", "0", "-", "-", VERSION]
    assert lines[2].split()[: len(shown)] == shown


def test_reload_says_what_was_reloaded() -> None:
    reloaded = router_pb2.ReloadRoutesResponse(targets=[BIG, SPARE], version=VERSION)
    played = play(("router", LIST_TARGETS, STAGED), ("router", RELOAD_ROUTES, reloaded))
    result = played.run("routes", "reload", "--json")
    assert result.exit_code == 0
    [outcome] = json.loads(result.stdout)
    versions = {"routes_version": VERSION, "file_version": VERSION}
    assert outcome == {"router": "router", "reloaded": True, "targets": 2, "mistakes": [], **versions}


def test_two_models_are_compared_line_by_line_with_a_verdict() -> None:
    lines = play(("router", LIST_OUTCOMES, OUTCOMES)).run("routes", "compare", "old", "other/new").stdout.splitlines()
    assert [line.split(maxsplit=1) for line in lines[1:-1]] == [
        ["calls", "1000                 100"],
        ["failures", "0                    12"],
        ["failed_percent", "0.0                  12.0"],
        ["errors", "-                    cut 7, provider 3"],
        ["first_token_median_ms", "250.0                750.0"],
        ["first_token_p95_ms", "475.0                975.0"],
        ["prompt_tokens", "70000                0"],
        ["completion_tokens", "9000                 0"],
        ["finish_reasons", "length 10, stop 990  tool_calls 90"],
        ["tool_calls", "0                    100"],
        ["valid_tool_calls_percent", "-                    98.0"],
    ]
    assert lines[-1] == "other/new fails more often: 12.0 % of 100 against 0.0 % of 1,000."


def test_model_without_calls_is_not_compared() -> None:
    for arguments in (("old", "newer"), ("old", "new", "--class", "mezzo")):
        result = play(("router", LIST_OUTCOMES, OUTCOMES)).run("routes", "compare", *arguments)
        assert result.exit_code == 1
        assert "There were no calls to" in result.stderr


def test_mistakes_in_the_file_are_told_and_exit_with_1() -> None:
    mistaken = router_pb2.ListTargetsResponse(file_mistakes=MISTAKES.splitlines())
    result = play(("router", LIST_TARGETS, mistaken)).run("routes", "reload", "--json")
    assert result.exit_code == 1
    [outcome] = json.loads(result.stdout)
    assert (outcome["reloaded"], outcome["mistakes"]) == (False, MISTAKES.splitlines())
    told = [f"legato: router: {mistake}" for mistake in MISTAKES.splitlines()]
    assert result.stderr.splitlines() == [*told, "legato: Nothing was reloaded."]


@pytest.mark.parametrize("file", [DEFAULT_PATH, DEFAULT_PATH.with_name("nowhere.toml")])
def test_file_is_checked_without_a_service(file: Path) -> None:
    is_right = file.exists()
    result = CliRunner().invoke(legato, ["routes", "check", str(file), "--json"])
    assert result.exit_code == (0 if is_right else 2)
    checked = json.loads(result.stdout)
    assert (checked["ok"], len(checked["mistakes"])) == (is_right, 0 if is_right else 1)
    assert checked["routes_version"] == (load_routes(file).version if is_right else None)


def test_checked_file_tells_the_credentials_of_providers_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("canary-of-a-token")
    file = tmp_path / "routes.toml"
    file.write_text(CLOUD)
    result = CliRunner().invoke(legato, ["routes", "check", str(file)])
    assert result.exit_code == 0
    assert f"Provider cloud has the credentials token_file {tmp_path / 'token'}." in result.stdout.splitlines()
    assert "canary" not in result.output
    checked = json.loads(CliRunner().invoke(legato, ["routes", "check", str(file), "--json"]).stdout)
    assert checked["credentials"] == {"cloud": f"token_file {tmp_path / 'token'}"}


def test_mistakes_in_a_checked_file_are_a_line_each_beside_the_output(tmp_path: Path) -> None:
    file = tmp_path / "routes.toml"
    file.write_text("colour = 'red'")
    result = CliRunner().invoke(legato, ["routes", "check", str(file)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{file}: colour: is not a known key" in result.stderr.splitlines()
    assert f"{file}: classes.mezzo: is missing" in result.stderr.splitlines()


class Admin(router_pb2_grpc.RouteAdminServiceServicer):
    def __init__(self, *file_versions: str) -> None:
        """The versions are those of its file, one look after the other."""
        self.file_versions = list(file_versions) or [VERSION]
        self.reloads: list[str] = []
        self.resumed: list[str] = []

    async def ReloadRoutes(self, request: Any, context: Any) -> router_pb2.ReloadRoutesResponse:
        self.reloads.append(request.version)
        return router_pb2.ReloadRoutesResponse(targets=[BIG], version=request.version)

    async def ListTargets(self, request: Any, context: Any) -> router_pb2.ListTargetsResponse:
        listed = router_pb2.ListTargetsResponse(file_version=self.file_versions[0])
        listed.MergeFrom(LISTED)
        if len(self.file_versions) > 1:
            self.file_versions.pop(0)
        return listed

    async def ListOutcomes(self, request: Any, context: Any) -> router_pb2.ListOutcomesResponse:
        return router_pb2.ListOutcomesResponse(outcomes=[OLD, NEW])

    async def DiffRoutes(self, request: Any, context: Any) -> router_pb2.DiffRoutesResponse:
        if request.text == "cedar":
            return router_pb2.DiffRoutesResponse(mistakes=['classes.forte.models: no model named "cedar"'])
        return router_pb2.DiffRoutesResponse(changes=["- forte: 1. maple", "+ forte: 1. cedar"])

    async def ResumeCanary(self, request: Any, context: Any) -> router_pb2.ResumeCanaryResponse:
        self.resumed.append(request.class_id)
        return router_pb2.ResumeCanaryResponse()


async def serve(admin: Any, log: Log) -> RpcServer:
    server = RpcServer("127.0.0.1:0", [admin], log, insecure_tcp=True)
    await server.start()
    return server


async def run(addresses: list[str], *arguments: str) -> Result:
    runner = CliRunner(env={"LEGATO_ROUTER_ADDRESS": ", ".join(addresses)})
    return await asyncio.to_thread(runner.invoke, legato, [*arguments, "--json"])


async def test_every_replica_is_asked(log: Log) -> None:
    admins = [Admin(), Admin()]
    servers = [await serve(admin, log) for admin in admins]
    addresses = [f"127.0.0.1:{server.port}" for server in servers]
    reloaded = await run(addresses, "routes", "reload")
    assert [outcome["router"] for outcome in json.loads(reloaded.stdout)] == addresses
    assert [admin.reloads for admin in admins] == [[VERSION], [VERSION]]
    shown = await run(addresses, "routes", "show")
    assert [row["router"] for row in json.loads(shown.stdout)] == [address for address in addresses for _ in range(2)]
    compared = json.loads((await run(addresses, "routes", "compare", "old", "new")).stdout)
    assert [model["calls"] for model in compared["models"]] == [2000, 200]
    assert json.loads((await run(addresses, "routes", "resume", "forte")).stdout)[1]["resumed"] is True
    assert [admin.resumed for admin in admins] == [["forte"], ["forte"]]
    for server in servers:
        await server.stop(0)


async def test_what_a_file_would_change_is_shown_for_each_router(log: Log, tmp_path: Path) -> None:
    file = tmp_path / "routes.toml"
    servers = [await serve(Admin(), log) for _ in range(2)]
    addresses = [f"127.0.0.1:{server.port}" for server in servers]
    file.write_text("maple")
    shown = json.loads((await run(addresses, "routes", "diff", str(file))).stdout)
    told = {"mistakes": [], "changes": ["- forte: 1. maple", "+ forte: 1. cedar"]}
    assert shown == {"routers": [{"router": address, **told} for address in addresses]}
    file.write_text("cedar")
    mistaken = await run(addresses, "routes", "diff", str(file))
    assert mistaken.exit_code == 2
    assert json.loads(mistaken.stdout)["routers"][0]["mistakes"] == ['classes.forte.models: no model named "cedar"']
    runner = CliRunner(env={"LEGATO_ROUTER_ADDRESS": addresses[0]})
    for_people = await asyncio.to_thread(runner.invoke, legato, ["routes", "diff", str(file)])
    assert (for_people.exit_code, for_people.stdout) == (2, "")
    assert for_people.stderr == f'{addresses[0]}: {file}: classes.forte.models: no model named "cedar"\n'
    for server in servers:
        await server.stop(0)


def test_file_that_is_no_text_has_no_difference_to_show(tmp_path: Path) -> None:
    file = tmp_path / "routes.toml"
    file.write_bytes(b"\xff\xfe")
    result = CliRunner().invoke(legato, ["routes", "diff", str(file)])
    assert (result.exit_code, "UTF-8" in result.output) == (2, True)


async def test_router_that_is_away_keeps_all_from_being_reloaded(log: Log) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
    admin = Admin()
    server = await serve(admin, log)
    result = await run([dead, f"127.0.0.1:{server.port}"], "routes", "reload")
    assert result.exit_code == 1
    assert [outcome["reloaded"] for outcome in json.loads(result.stdout)] == [False, False]
    assert admin.reloads == []
    assert result.stderr.startswith(f"legato: {dead}: ")
    await server.stop(0)


async def test_routers_whose_files_differ_are_named_and_none_is_reloaded(log: Log) -> None:
    admins = [Admin("a" * 12), Admin("b" * 12)]
    servers = [await serve(admin, log) for admin in admins]
    addresses = [f"127.0.0.1:{server.port}" for server in servers]
    result = await run(addresses, "routes", "reload")
    assert result.exit_code == 1
    assert [admin.reloads for admin in admins] == [[], []]
    assert result.stderr.splitlines() == [
        f"legato: {addresses[0]}: its file has version aaaaaaaaaaaa",
        f"legato: {addresses[1]}: its file has version bbbbbbbbbbbb",
        "legato: Nothing was reloaded.",
    ]
    shown = await run(addresses, "routes", "show")
    versions = [(row["router"], row["routes_version"], row["file_version"]) for row in json.loads(shown.stdout)]
    assert versions[0] == (addresses[0], VERSION, "a" * 12)
    for server in servers:
        await server.stop(0)


async def test_reload_waits_until_all_routers_see_the_same_file(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_command, "LOOK_EVERY_S", 0.01)
    # As a ConfigMap reaches one pod before another.
    admins = [Admin("new"), Admin("old", "old", "new")]
    servers = [await serve(admin, log) for admin in admins]
    result = await run([f"127.0.0.1:{server.port}" for server in servers], "routes", "reload", "--wait", "60")
    assert result.exit_code == 0
    assert [admin.reloads for admin in admins] == [["new"], ["new"]]
    for server in servers:
        await server.stop(0)


def test_promise_that_lapses_soon_is_told_of_a_valid_file(tmp_path: Path) -> None:
    until = utc_today() + timedelta(days=3)
    file = tmp_path / "routes.toml"
    promise = f'zero_retention = true\nevidence = "contract 4711"\nuntil = {until}'
    text = GOOD.replace("host.test", "api.vendor.com").replace("zero_retention = true", promise)
    file.write_text(text)
    result = CliRunner(env={"HOST_KEY": "secret"}).invoke(legato, ["routes", "check", str(file)])
    assert result.exit_code == 0
    verdict, warning = result.stdout.splitlines()
    assert verdict.startswith("The routes are valid.")
    assert warning == f"{file}: providers.host.until: zero retention is promised until {until}, which is in 3 days"
