"""Exports spans to a collector, by OTLP over HTTP in JSON.

A thread of its own sends them in batches. A slow or unavailable collector costs spans, which are counted, and nothing
else: no request ever waits for it, and the queue is bounded.

OpenTelemetry's own library is not used: it takes ten times as long per span, 18 MB in each process, and eight packages.
"""

import http.client
import threading
from collections import deque
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.tracing import Span, Value

PATH: Final = "/v1/traces"
WAITING_MOST: Final = 4096
BATCH_MOST: Final = 512
EACH_S: Final = 1.0
TIMEOUT_S: Final = 5.0


class Exporter:
    def __init__(self, endpoint: str, service: str, log: Log) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError("LEGATO_OTLP_ENDPOINT must be http://HOST:PORT or https://HOST:PORT")
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._path = parts.path.rstrip("/") + PATH
        self._resource = {"attributes": _attributes({"service.name": f"legato-{service}"})}
        self._log = log
        self._waiting: deque[Span] = deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._is_away = False
        self.sent = 0
        self.dropped = 0

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Sends the remaining spans, within the timeout."""
        self._closing.set()
        self._thread.join(TIMEOUT_S)

    def put(self, span: Span) -> None:
        if len(self._waiting) < WAITING_MOST:
            self._waiting.append(span)
        else:
            self.dropped += 1

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._closing.wait(EACH_S)
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH_MOST, len(self._waiting)))]
                if self._post(batch):
                    self.sent += len(batch)
                else:
                    self.dropped += len(batch)

    def _post(self, spans: list[Span]) -> bool:
        body = encode(self._resource, spans)
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            is_taken = connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            is_taken = False
        finally:
            connection.close()
        if not is_taken and not self._is_away:
            # Once per outage, not once a second.
            self._log.warning("collector.unreachable")
        self._is_away = not is_taken
        return is_taken


def encode(resource: dict[str, Any], spans: list[Span]) -> bytes:
    scope = {"scope": {"name": "legato"}, "spans": [_span(span) for span in spans]}
    return msgspec.json.encode({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})


def _span(span: Span) -> dict[str, Any]:
    ended_s = span.began_s if span.ended_s is None else span.ended_s
    told: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": str(span.epoch_ns + round(span.began_s * 1e9)),
        "endTimeUnixNano": str(span.epoch_ns + round(ended_s * 1e9)),
        "attributes": _attributes(span.attributes),
        # 2: an error.
        "status": {"code": 2} if "error.type" in span.attributes else {},
    }
    if span.parent_id:
        told["parentSpanId"] = span.parent_id
    return told


def _attributes(attributes: dict[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        # 64-bit integers are strings in protobuf's JSON.
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": value}
