"""Waits until the service responds, then prints how to use it, as the last output of `docker compose up`.

python deploy/hello.py http://balancer:8080/v1 http://127.0.0.1:8080/v1        the addresses inside and outside
"""

import sys
import time
import urllib.error
import urllib.request

TRY_AGAIN_S = 1.0
TIMEOUT_S = 5.0

HELLO = """
Legato serves on {address}. To make a key, and to use it:

  docker compose run --rm legato accounts create me --credits 5.00
  docker compose run --rm legato keys create --account ACCOUNT_ID
  curl {address}/chat/completions -H "Authorization: Bearer KEY" \\
    -d '{{"messages": [{{"role": "user", "content": "Hello"}}]}}'
"""


def answers(base_url: str) -> bool:
    """Tells if the edge responds; a call without a key is refused with 401."""
    try:
        urllib.request.urlopen(f"{base_url}/models", timeout=TIMEOUT_S)  # noqa: S310  (the address is the operator's)
    except urllib.error.HTTPError as refusal:
        return refusal.code == 401
    except OSError:
        return False
    return True


if __name__ == "__main__":
    inside, outside = sys.argv[1:]
    while not answers(inside):
        time.sleep(TRY_AGAIN_S)
    sys.stdout.write(HELLO.format(address=outside))
