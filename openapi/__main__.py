"""`make openapi`: writes the document that the edge serves."""

import json

from edge.api.app import FILE
from openapi.document import document


def written() -> bytes:
    return json.dumps(document(), indent=1, ensure_ascii=False).encode() + b"\n"


if __name__ == "__main__":
    FILE.write_bytes(written())
