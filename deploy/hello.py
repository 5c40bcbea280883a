"""Waits until the service responds, then prints how to use it, as the last output of `docker compose up`.

python deploy/hello.py http://balancer:8080/v1 http://127.0.0.1:8080/v1        the addresses inside and outside
"""

import sys
import time
import urllib.error
import urllib.request

import click

from cli.commands.account.accounts import create_account, every_account
from cli.commands.account.console import first_link
from cli.commands.account.users import console_origin
from cli.connection import running_services
from cli.settings import CommandSettings, read_settings

TRY_AGAIN_S = 1.0
TIMEOUT_S = 5.0
FIRST_ACCOUNT = "default"

HELLO = """
Legato serves on {address}. To make a key, and to use it:

  docker compose run --rm legato accounts create me --credits 5.00
  docker compose run --rm legato keys create --account ACCOUNT_ID
  curl {address}/chat/completions -H "Authorization: Bearer KEY" \\
    -d '{{"messages": [{{"role": "user", "content": "Hello"}}]}}'

{console}
"""

CONSOLE = """\
Or in a browser, with the web console (signs you in once, within ten minutes):

  {link}

  docker compose run --rm legato credits grant {account_id} 5.00     credit for an account
  docker compose run --rm legato console sign-in-link                another link"""


def answers(base_url: str) -> bool:
    """Tells if the edge responds; a call without a key is refused with 401."""
    try:
        urllib.request.urlopen(f"{base_url}/models", timeout=TIMEOUT_S)  # noqa: S310  (the address is the operator's)
    except urllib.error.HTTPError as refusal:
        return refusal.code == 401
    except OSError:
        return False
    return True


def console_text() -> str:
    """Makes a link to the console; the first time also an account, without credit, and an operator who owns it."""
    data = read_settings(CommandSettings).data
    services = running_services(data)
    try:
        first = next(every_account(services), None)
        account = first or create_account(services, FIRST_ACCOUNT, 0)[0]
        link = first_link(services, console_origin(data), "" if first else account.account_id)["link"]
    except click.ClickException as error:
        return f"There is no link to the web console: {error.format_message()}"
    finally:
        services.close()
    return CONSOLE.format(link=link, account_id=account.account_id)


if __name__ == "__main__":
    inside, outside = sys.argv[1:]
    while not answers(inside):
        time.sleep(TRY_AGAIN_S)
    sys.stdout.write(HELLO.format(address=outside, console=console_text()))
