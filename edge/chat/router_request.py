"""The request to the router: the parts of the client's request that it needs, and the account's permissions."""

from edge.principal import Principal
from edge.wire.chat_request import ChatBody
from protos.router.v1.router_pb2 import ChatOpen, Grant


def chat_opening(body: ChatBody, principal: Principal, request_id: str, grant: Grant) -> ChatOpen:
    return ChatOpen(
        request_id=request_id,
        account_id=principal.account_id,
        model=body.model,
        preferred_class=principal.preferred_class,
        messages_json=body.messages_json,
        tools_json=body.tools_json,
        tool_choice_json=body.tool_choice_json,
        stream=body.stream,
        max_tokens=body.max_tokens,
        parameters_json=body.parameters_json,
        grant=grant,
        key_id=principal.key_id,
        search=principal.search and not body.names_tool_choice,
        memory=principal.memory,
        attachments=principal.attachments,
    )
