"""Counts the tokens of a request to `/v1/messages`, as the models of its class count."""

from edge.backends.auth import Principal
from edge.chat.edge_state import EdgeState
from edge.messages.request import render_chat
from edge.wire.body_reader import check_size, read_body
from edge.wire.chat_request import decode_chat
from legato_protos.router.v1.router_pb2 import ChatOpen
from services.chassis.http.asgi import HttpScope, Receive
from services.chassis.http.body_progress import TimedReceive


async def count_tokens(edge: EdgeState, principal: Principal, scope: HttpScope, receive: Receive) -> int:
    """Reads the body, and asks a router. Nothing is charged."""
    with edge.prompt_memory.hold(principal.account_id) as memory:
        rendered = (await render_chat(await read_body(scope, TimedReceive(receive), memory))).body
        check_size(len(rendered))
        memory.grow_to(len(rendered))
        body = await decode_chat(rendered)
        del rendered
        chat = ChatOpen(
            account_id=principal.account_id,
            model=edge.models.class_for(body.model, principal),
            tool_choice_json=body.tool_choice_json,
            parameters_json=body.parameters_json,
            tools_json=body.tools_json,
            messages_json=body.messages_json,
        )
        if principal.allowed_classes is not None:
            chat.allowed_classes.class_ids.extend(sorted(principal.allowed_classes))
        return await edge.routers.least_loaded().count_tokens(chat)
