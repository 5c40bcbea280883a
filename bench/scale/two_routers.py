"""`legato up` with two routers, between which the edges distribute their chats; otherwise the same processes."""

import dataclasses
from collections.abc import Sequence
from typing import Final
from unittest.mock import patch

from cli.commands import up
from cli.main import main
from cli.supervision.data_folder import socket_of
from cli.supervision.health import HealthProbe
from cli.supervision.processes import Installation, process_groups
from cli.supervision.supervisor import ProcessSpec

SECOND: Final = "router-2"


def groups_with_second(installation: Installation) -> Sequence[Sequence[ProcessSpec]]:
    *services, [router], edges = process_groups(installation)
    socket = socket_of(SECOND, installation.data)
    listen = {"LEGATO_ROUTER_LISTEN": f"unix:{socket}"}
    second = dataclasses.replace(
        router, name=SECOND, environ={**router.environ, **listen}, health=HealthProbe("grpc", str(socket))
    )
    both = {"LEGATO_ROUTER_ADDRESS": f"{router.environ['LEGATO_ROUTER_LISTEN']},unix:{socket}"}
    told = [dataclasses.replace(edge, environ={**edge.environ, **both}) for edge in edges]
    return [*services, [router, second], told]


if __name__ == "__main__":
    with patch.object(up, "process_groups", groups_with_second):
        main()
