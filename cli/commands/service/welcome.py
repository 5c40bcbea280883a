"""The first-start message: an account with credit, a key, and a command to try."""

import json
import shlex
import shutil
import sys
from textwrap import indent

import click

from cli.commands.account.accounts import create_account, every_account
from cli.commands.account.console import first_link
from cli.commands.account.keys import create_key
from cli.connection import ServiceStubs
from services.chassis.money import NANOS_PER_DOLLAR, format_usd
from services.rules.agents import SHOWN_AGENTS

FIRST_ACCOUNT = "default"
FIRST_CREDIT_NANOS = 5 * NANOS_PER_DOLLAR


def welcome(services: ServiceStubs, base_url: str, console_url: str = "") -> dict[str, str]:
    """Creates the first account and its key, if there is no account yet; and a link to the console, if there is one."""
    first = next(every_account(services), None)
    if first is not None:
        return {"base_url": base_url, "account_id": first.account_id, **_link(services, console_url)}
    account, balance = create_account(services, FIRST_ACCOUNT, FIRST_CREDIT_NANOS)
    made = create_key(services, account.account_id, "first", [], None)
    return {
        "base_url": base_url,
        "account_id": account.account_id,
        "balance_usd": format_usd(balance.balance_nanos),
        "api_key": made.api_key,
        **_link(services, console_url, account.account_id),
    }


def _link(services: ServiceStubs, console_url: str, new_account_id: str = "") -> dict[str, str]:
    """Makes a link that signs the first operator in, who owns the new account."""
    return {"console": str(first_link(services, console_url, new_account_id)["link"])} if console_url else {}


def show_welcome(greeting: dict[str, str], folder_option: str, *, is_bundled: bool = False) -> None:
    """Prints the greeting; `is_bundled`: the model that comes with Legato answers."""
    click.echo(f"\n  Base URL      {greeting['base_url']}")
    if "console" in greeting:
        click.echo(f"  Console       {greeting['console']}")
        click.echo("                (signs you in once, within ten minutes)")
    if is_bundled:
        click.echo(
            "  Model         the tiny one that comes with Legato: its answers are often wrong or make little sense"
        )
        click.echo("                (real models: see docs/routes.md)")
    if "api_key" not in greeting:
        click.echo(f"  Another key   {this_command()} keys create --account {greeting['account_id']}{folder_option}\n")
        return
    click.echo(f"  Account       {greeting['account_id']} with {greeting['balance_usd']} $ of credit")
    click.echo(f"  Key           {greeting['api_key']}   (shown only once: save it)\n")
    click.echo("  Try it:\n")
    click.echo(f"    {curl_line(greeting['base_url'], greeting['api_key'])}\n")
    for agent in SHOWN_AGENTS:
        click.echo(f"  Use it in {agent.title}:\n")
        settings = agent.settings.filled(_reachable(greeting["base_url"]), greeting["api_key"])
        click.echo(f"{indent(settings.exports, '    ')}\n")
        for path, text in settings.files.items():
            click.echo(f"    in ~/{path}:\n\n{indent(text, '      ')}")


def this_command() -> str:
    """Returns how this command is called: without an active environment, by the path that was used."""
    return "legato" if shutil.which("legato") else shlex.quote(sys.argv[0])


def _reachable(base_url: str) -> str:
    """Returns the address for clients here: a wildcard is reached on loopback."""
    return base_url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def curl_line(base_url: str, api_key: str) -> str:
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 32})
    return (
        f"curl -sS {_reachable(base_url)}/chat/completions -H 'Authorization: Bearer {api_key}' "
        f"-H 'Content-Type: application/json' -d '{body}'"
    )
