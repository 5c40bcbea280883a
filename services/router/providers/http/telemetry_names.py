"""Names of providers by the conventions of OpenTelemetry for generative AI."""

from typing import Final
from urllib.parse import urlsplit

from services.router.providers.base import ProviderRoute

# Labels of metrics: the router is the client and the model the server.
MODEL_LABELS: Final = ("gen_ai_provider_name", "gen_ai_request_model")
# By host; a name that begins with a dot is the end of one.
_BY_HOST: Final = {
    "api.openai.com": "openai",
    ".api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    ".openai.azure.com": "azure.ai.openai",
    ".services.ai.azure.com": "azure.ai.inference",
    ".models.ai.azure.com": "azure.ai.inference",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "-aiplatform.googleapis.com": "gcp.vertex_ai",
    ".rep.googleapis.com": "gcp.vertex_ai",
    "api.cohere.com": "cohere",
    "api.cohere.ai": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.moonshot.ai": "moonshot_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    ".api.x.ai": "x_ai",
    ".ml.cloud.ibm.com": "ibm.watsonx.ai",
}
# Of other hosts, such as a proxy's: whose API it is.
_BY_KIND: Final = {"anthropic": "anthropic", "gemini": "gcp.gen_ai"}


def telemetry_name(route: ProviderRoute) -> str:
    """Returns the name of a provider that is well known, or else the one that it has in the routes."""
    host = urlsplit(route.base_url).hostname or ""
    if host.startswith(("bedrock-", "bedrock.")) and host.endswith((".amazonaws.com", ".api.aws")):
        return "aws.bedrock"
    for name, known in _BY_HOST.items():
        if host == name or (name[0] in ".-" and host.endswith(name)):
            return known
    return _BY_KIND.get(route.kind, route.name)
