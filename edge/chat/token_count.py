"""Counts the tokens of a chat's prompt, as the models of its class count. Nothing is charged, and no model is asked."""

from edge.backends.auth import Principal
from edge.chat.edge_state import EdgeState
from edge.wire.body_reader import check_size
from edge.wire.chat_request import decode_chat
from legato_protos.router.v1.router_pb2 import ChatOpen
from services.chassis.load.fair_budget import BudgetShare


async def count_tokens(edge: EdgeState, principal: Principal, chat_json: bytes, memory: BudgetShare) -> int:
    """Validates the body of a chat completion, and asks a router."""
    check_size(len(chat_json))
    memory.grow_to(len(chat_json))
    body = await decode_chat(chat_json)
    del chat_json
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
