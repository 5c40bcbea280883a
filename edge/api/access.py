"""Dependencies of endpoints: the parts of the edge, the API key, its scope, its rate limit.

A chat passes the same checks in another order, since it also waits for capacity and for its body
(`edge/chat/endpoint.py`).
"""

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer, SecurityScopes

from edge.backends.auth import Principal, Scope
from edge.chat.edge_state import EdgeState

# They only describe where a key is sent; `Principals` reads it.
_BEARER = HTTPBearer(scheme_name="bearer", auto_error=False)
_API_KEY = APIKeyHeader(scheme_name="apiKey", name="x-api-key", auto_error=False)


async def edge_of(request: Request) -> EdgeState:
    edge: EdgeState = request.app.state.edge
    return edge


# A parameter of an endpoint: `edge: Edge`.
Edge = Annotated[EdgeState, Depends(edge_of)]


async def identified_key(
    request: Request,
    needed: SecurityScopes,
    edge: Edge,
    _bearer: Annotated[object, Security(_BEARER)],
    _api_key: Annotated[object, Security(_API_KEY)],
) -> Principal:
    """Authenticates the request's key, and checks that it has the scope that the endpoint names, if any."""
    scopes = [Scope.Value(f"SCOPE_{name.upper()}") for name in needed.scopes]
    return await edge.principals.identify(request.scope, scopes[0] if scopes else None)


async def admitted_key(principal: Annotated[Principal, Security(identified_key)], edge: Edge) -> Principal:
    """Charges the request to the key's rate limit."""
    await edge.metering.admit(principal)
    return principal


# Parameters of an endpoint. Each needs a valid key with the scope, and takes a request from the key's rate limit.
ModelsKey = Annotated[Principal, Security(admitted_key, scopes=["models"])]
ChatKey = Annotated[Principal, Security(admitted_key, scopes=["inference"])]
UsageKey = Annotated[Principal, Security(admitted_key, scopes=["usage"])]
