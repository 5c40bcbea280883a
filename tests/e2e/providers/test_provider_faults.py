"""A class of two models, of which the first fails in every way that is known: what the client gets and when, how often
each provider is called, and what is charged. With default settings; the waits are those of a clock that is moved.

Each row of FAULTS is a line of the table in docs/faults.md.
"""

import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest

from tests.e2e.providers.two_providers import (
    FIRST,
    SECOND,
    Charge,
    Seen,
    TwoProviders,
    begun_by,
    our_count,
    said_by,
    two_providers,
)
from tests.support.servers.ports import free_port
from tests.support.upstreams.scripted import (
    CLOSE,
    CUT,
    END,
    SILENCE,
    STREAM_HEAD,
    Drip,
    Pause,
    Script,
    Spoken,
    chunk,
    event,
    response,
)

PAGE = Path(__file__).parents[3] / "docs" / "faults.md"
# Comments are sent while a client waits for longer than this, and the status before them.
KEEPALIVE_S: Final = 10
# Time goes on in steps, also while the service does what is due.
LATE_S: Final = 12
LONG_S: Final = 60

Fault = Callable[[Spoken], Script]
# Whether an answer is streamed, and whether there are tools.
Mode = tuple[bool, bool]


def cut_after(stage: str) -> Fault:
    return lambda answer: [answer.until(stage), CUT]


def cut_within(stage: str) -> Fault:
    return lambda answer: [answer.within(stage), CUT]


def ends_after(stage: str) -> Fault:
    return lambda answer: [answer.until(stage), END]


def silent_after(stage: str) -> Fault:
    return lambda answer: [answer.until(stage), SILENCE]


def pauses_after(stage: str, pause_s: float) -> Fault:
    def script(answer: Spoken) -> Script:
        said = answer.until(stage)
        return [said, Pause(pause_s), answer.until("end").removeprefix(said)]

    return script


def comments_after(stage: str) -> Fault:
    return lambda answer: [answer.until(stage), Drip(chunk(b": still here\n\n"), every_s=4)]


def says(*script: bytes) -> Fault:
    return lambda answer: list(script)


def refuses(status: int, error: str = "no", *headers: str) -> Fault:
    return says(
        response(status, b'{"error":{"message":"%b","code":"%b"}}' % (error.encode(), error.encode()), *headers)
    )


def error_after(stage: str, code: int) -> Fault:
    return lambda answer: [answer.until(stage), event({"error": {"message": "no", "code": code}}), END]


def garbage_after(stage: str) -> Fault:
    return lambda answer: [answer.until(stage), event(b"{{{"), END]


def silence(answer: Spoken) -> Script:
    return [SILENCE]


def byte_by_byte(answer: Spoken) -> Script:
    return [bytes([byte]) for byte in answer.until("end")]


def empty(answer: Spoken) -> Script:
    stages = replace(answer, completion_tokens=0).stages
    return [STREAM_HEAD, *(stages[stage] for stage in ("role", "finish", "usage", "done", "end"))]


def with_other_type(content_type: bytes) -> Fault:
    return lambda answer: [answer.until("end").replace(b"text/event-stream", content_type)]


def whole(answer: Spoken) -> Script:
    return [response(200, answer.whole())]


def compressed(answer: Spoken) -> Script:
    return [response(200, gzip.compress(answer.whole()), "Content-Encoding: gzip")]


@dataclass(frozen=True)
class Outcome:
    """What the client sees and pays, in the words of the page."""

    sees: str
    charged: str = "nothing"
    calls: tuple[int, int] = (1, 1)
    # An open connection that is closed just as it is used is replaced, once: the provider may see one more call.
    reconnects: bool = False
    after_s: int = 0
    status: int = 200
    code: str | None = None

    def calling(self, first: int, second: int) -> "Outcome":
        return replace(self, calls=(first, second))

    def reconnecting(self) -> "Outcome":
        return replace(self, reconnects=True)

    def after(self, after_s: int) -> "Outcome":
        return replace(self, after_s=after_s)


def refused(status: int, code: str) -> Outcome:
    return Outcome(f"{status} `{code}`", status=status, code=code)


BY_FIRST = Outcome("the first's answer", "the first's usage", (1, 0))
BY_FIRST_COUNTED = replace(BY_FIRST, charged="our count")
BY_SECOND = Outcome("the second's answer", "the second's usage")
EMPTY = Outcome("an empty answer")
# The client has begun to read.
BROKEN_OFF = Outcome("its first words, then an error", "what was delivered", (1, 0), code="upstream_error")
BROKEN_OFF_LATE = replace(BROKEN_OFF, sees="its words, then an error")
FAILED = refused(502, "upstream_error")
NOT_SUPPORTED = refused(400, "request_not_supported")
AGAINST_POLICY = refused(400, "content_policy_violation")
FULL = refused(429, "saturated")


@dataclass(frozen=True)
class Row:
    what: str
    first: Fault | None
    streamed: Outcome
    # As streamed, unless it differs.
    whole: Outcome | None = None
    second: Fault | None = None
    # In place of the first provider's server.
    address: str = ""
    # How many calls fail; then it answers.
    fails: int = 100
    has_second: bool = True
    # What the client asks for beside the ordinary.
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def modes(self) -> list[Mode]:
        """Each fault streamed and whole, one of them with tools: which one differs from row to row."""
        has_tools = not self.takes_long and crc32(self.what.encode()) % 2 == 1
        return [(True, has_tools), (False, not has_tools)]

    @property
    def other_modes(self) -> list[Mode]:
        return [] if self.takes_long else [(streams, not has_tools) for streams, has_tools in self.modes]

    @property
    def takes_long(self) -> bool:
        return self.streamed.after_s > LONG_S or not self.has_second


NO_SERVER, NO_NAME = "http://127.0.0.1:FREE/v1", "http://provider.invalid/v1"
NO_TLS, NOT_TRUSTED = "https://127.0.0.1:OWN/v1", "https://localhost:TLS/v1"
POLICY = "content_policy_violation"
BUSY = refuses(429, "rate_limited", "Retry-After: 20")
BUSY_SHORTLY = refuses(429, "rate_limited", "Retry-After: 1")
HTML = response(200, b"<html><body>It works!</body></html>", content_type="text/html")

FAULTS = [
    # Connections.
    Row("refuses connections", None, BY_SECOND.calling(0, 1), address=NO_SERVER),
    Row("has a name that does not resolve", None, BY_SECOND.calling(0, 1), address=NO_NAME),
    Row("does not speak TLS where it should", None, BY_SECOND.calling(0, 1), address=NO_TLS),
    Row("has a certificate that is not trusted", None, BY_SECOND.calling(0, 1), address=NOT_TRUSTED),
    Row("closes the connection without a response", lambda answer: [CLOSE], BY_SECOND.reconnecting()),
    Row("resets the connection without a response", lambda answer: [CUT], BY_SECOND.reconnecting()),
    # Silence.
    Row("sends nothing", silence, BY_SECOND.after(30)),
    Row("is silent after half of its headers", lambda answer: [STREAM_HEAD[:40], SILENCE], BY_SECOND.after(30)),
    Row("is silent after its headers", silent_after("head"), BY_SECOND.after(30)),
    Row("is silent after a first event without content", silent_after("role"), BY_SECOND.after(30)),
    Row("is silent after its first words", silent_after("first"), BROKEN_OFF.after(60), BY_SECOND.after(60)),
    Row("is silent before its finish", silent_after("rest"), BROKEN_OFF_LATE.after(60), BY_SECOND.after(60)),
    Row("is silent before its usage", silent_after("finish"), BY_FIRST_COUNTED.after(5)),
    Row("is silent before its end", silent_after("usage"), BY_FIRST.after(5)),
    Row("pauses for 24 s before its first words", pauses_after("head", 24), BY_FIRST.after(24)),
    Row("pauses for 44 s after its first words", pauses_after("first", 44), BY_FIRST.after(44)),
    Row("sends comments and no event", comments_after("head"), BY_SECOND.after(30)),
    Row("sends comments after a first event without content", comments_after("role"), BY_SECOND.after(30)),
    Row("sends one byte at a time", byte_by_byte, BY_FIRST),
    # Refusals.
    Row("400, for a field that it does not know", refuses(400, "unsupported_parameter"), BY_SECOND),
    Row("400, for `seed`, once", refuses(400, "seed"), BY_FIRST.calling(2, 0), fails=1, fields={"seed": 7}),
    Row("400, for the content of the prompt", refuses(400, POLICY), AGAINST_POLICY.calling(1, 0)),
    Row("401", refuses(401), BY_SECOND),
    Row("402", refuses(402), BY_SECOND),
    Row("403", refuses(403), BY_SECOND),
    Row("404", refuses(404), BY_SECOND),
    Row("408", refuses(408), BY_SECOND),
    Row("409", refuses(409), BY_SECOND),
    Row("413", refuses(413), BY_SECOND),
    Row("422", refuses(422), BY_SECOND),
    Row("429", refuses(429), BY_SECOND),
    Row("429, with `retry-after`", BUSY, BY_SECOND),
    Row("429, because our credit there is spent", refuses(429, "insufficient_quota"), BY_SECOND),
    Row("307", says(response(307, b"", "Location: http://127.0.0.1:9/")), BY_SECOND),
    Row("500", refuses(500), BY_SECOND),
    Row("502", refuses(502), BY_SECOND),
    Row("503", refuses(503), BY_SECOND),
    Row("504", refuses(504), BY_SECOND),
    Row("529", refuses(529), BY_SECOND),
    # Answers that are none.
    Row("an error with status 200", says(response(200, b'{"error":{"message":"no"}}')), BY_SECOND),
    Row("an HTML page with status 200", says(HTML), BY_SECOND),
    Row("an empty body with status 200", says(response(200, b"")), BY_SECOND),
    Row("an empty stream", ends_after("head"), BY_SECOND),
    Row("an answer without content", empty, BY_SECOND),
    Row("an invalid event first", garbage_after("role"), BY_SECOND),
    Row("an invalid event after its first words", garbage_after("first"), BROKEN_OFF, BY_SECOND),
    Row("an error event with code 400 first", error_after("head", 400), BY_SECOND),
    Row("an error event with code 429 first", error_after("head", 429), BY_SECOND),
    Row("an error event with code 500 first", error_after("role", 500), BY_SECOND),
    Row("an error event with code 400 after its first words", error_after("first", 400), BROKEN_OFF, BY_SECOND),
    Row("an error event with code 500 after its first words", error_after("first", 500), BROKEN_OFF, BY_SECOND),
    Row("a stream of the type `text/plain`", with_other_type(b"text/plain"), BY_FIRST),
    Row("a stream of the type `application/json`", with_other_type(b"application/json"), BY_SECOND),
    Row("a whole answer in place of a stream", whole, BY_FIRST),
    Row("a compressed answer, which was not asked for", compressed, BY_SECOND),
    # Answers that break off.
    Row("cut within its headers", cut_within("head"), BY_SECOND),
    Row("cut after its headers", cut_after("head"), BY_SECOND),
    Row("cut after a first event without content", cut_after("role"), BY_SECOND),
    Row("cut within its first words", cut_within("first"), BY_SECOND),
    Row("cut after its first words", cut_after("first"), BROKEN_OFF, BY_SECOND),
    Row("cut before its finish", cut_after("rest"), BROKEN_OFF_LATE, BY_SECOND),
    Row("ended before its finish", ends_after("rest"), BROKEN_OFF_LATE, BY_SECOND),
    Row("cut before its usage", cut_after("finish"), BY_FIRST_COUNTED),
    Row("cut before its end", cut_after("usage"), BY_FIRST),
    # No model answers.
    Row("500, as does the second", refuses(500), FAILED.calling(1, 2), second=refuses(500)),
    Row("429, as does the second", refuses(429), FULL, second=refuses(429)),
    Row("400, as does the second", refuses(400), NOT_SUPPORTED, second=refuses(400)),
    Row("400, and the second 500", refuses(400), FAILED.calling(1, 2), second=refuses(500)),
    Row("500, and the second 400 for the content", refuses(500), AGAINST_POLICY, second=refuses(400, POLICY)),
    Row("sends nothing, as does the second", silence, FAILED.after(150), second=silence),
    Row("an answer without content, as does the second", empty, EMPTY, second=empty),
    # A class with one model.
    Row("500 once, as the only model", refuses(500), BY_FIRST.calling(2, 0), fails=1, has_second=False),
    Row("500, as the only model", refuses(500), FAILED.calling(2, 0), has_second=False),
    Row(
        "429 once with `retry-after: 1`, as the only model",
        BUSY_SHORTLY,
        BY_FIRST.calling(2, 0).after(1),
        fails=1,
        has_second=False,
    ),
    Row("429 with `retry-after: 20`, as the only model", BUSY, FULL.calling(1, 0), has_second=False),
    Row("400, as the only model", refuses(400), NOT_SUPPORTED.calling(1, 0), has_second=False),
    Row("sends nothing, as the only model", silence, FAILED.calling(1, 0).after(120), has_second=False),
    Row(
        "cut once before its words, as the only model",
        cut_after("role"),
        BY_FIRST.calling(2, 0),
        fails=1,
        has_second=False,
    ),
    Row(
        "cut once after its first words, as the only model",
        cut_after("first"),
        BROKEN_OFF,
        BY_FIRST.calling(2, 0),
        fails=1,
        has_second=False,
    ),
]


def described(row: Row) -> str:
    """Returns the row's line of the page."""
    streamed, whole = row.streamed, row.whole or row.streamed
    charged = streamed.charged if streamed.charged == whole.charged else f"{streamed.charged}; {whole.charged}"
    after = f"{streamed.after_s} s" if streamed.after_s else "at once"
    return f"| {row.what} | {streamed.sees} | {whole.sees} | {after} | {charged} |"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoProviders]:
    with two_providers(tmp_path_factory.mktemp("time")) as pair:
        yield pair


@pytest.fixture(scope="module")
def prompt_tokens(pair: TwoProviders) -> dict[bool, int]:
    """Our count of the prompt, with tools and without."""
    counted = {}
    for has_tools in (False, True):
        pair.renew()
        client = pair.new_client()
        stages = FIRST[has_tools].stages
        pair.first.scripts.append([stage for name, stage in stages.items() if name != "usage"])
        seen = pair.chat(client, streams=True, has_tools=has_tools)
        counted[has_tools] = client.charges[seen.request_id].prompt_tokens
    return counted


@pytest.mark.parametrize(
    "modes_of",
    [
        pytest.param(attrgetter("modes"), id="one"),
        pytest.param(attrgetter("other_modes"), id="other", marks=pytest.mark.long),
    ],
)
def test_every_fault_has_the_outcome_that_is_written(
    pair: TwoProviders, prompt_tokens: dict[bool, int], modes_of: Callable[[Row], list[Mode]]
) -> None:
    found = []
    for row in FAULTS:
        client = pair.new_client()
        for streams, has_tools in modes_of(row):
            prepare(pair, row, has_tools=has_tools)
            seen = pair.chat(client, streams=streams, has_tools=has_tools, **row.fields)
            found.append((row, client, streams, has_tools, seen))
    wrong = []
    for row, client, streams, has_tools, seen in found:
        expected = row.streamed if streams or row.whole is None else row.whole
        differences = compare(expected, seen, client.charges.get(seen.request_id), streams, has_tools, prompt_tokens)
        how = f"{'streamed' if streams else 'whole'}{', with tools' if has_tools else ''}"
        wrong += [f"{row.what} ({how}): {difference}" for difference in differences]
    assert not wrong, "\n".join(wrong)
    assert pair.service.audit() == []


def test_every_fault_is_described() -> None:
    lines = PAGE.read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("| What the first provider"))
    table = lines[begin + 2 :]
    assert table[: table.index("")] == [described(row) for row in FAULTS]


def test_provider_that_fails_every_other_call_costs_no_chat(pair: TwoProviders) -> None:
    pair.renew()
    client = pair.new_client()
    for _ in range(12):
        pair.first.scripts += [refuses(500)(FIRST[False]), [FIRST[False].until("end")]]
    answers = [pair.chat(client, streams=bool(number % 2), has_tools=False) for number in range(24)]
    assert {(seen.status, seen.code) for seen in answers} == {(200, None)}
    assert {seen.said for seen in answers} == {said_by(FIRST[False]), said_by(SECOND[False])}
    assert len(client.charges) == len(answers)


def test_provider_that_is_down_is_left_alone_and_serves_again_once_it_is_well(pair: TwoProviders) -> None:
    pair.renew()
    client = pair.new_client()
    pair.first.scripts.extend([[CUT]] * 100)
    down = [pair.chat(client, streams=True, has_tools=False) for _ in range(8)]
    assert {seen.said for seen in down} == {said_by(SECOND[False])}
    assert [seen.calls[0] for seen in down][-2:] == [0, 0]
    pair.first.scripts.clear()
    pair.clock.move(4)
    well = [pair.chat(client, streams=True, has_tools=False) for _ in range(3)]
    assert [(seen.said, seen.calls) for seen in well] == [(said_by(FIRST[False]), (1, 0))] * 3


def prepare(pair: TwoProviders, row: Row, *, has_tools: bool) -> None:
    ports = {"FREE": free_port(), "OWN": pair.first.port, "TLS": pair.not_trusted.port}
    address = row.address
    for name, port in ports.items():
        address = address.replace(name, str(port))
    pair.renew(first_url=address, only_one=not row.has_second)
    if row.first is not None:
        pair.first.scripts.extend([row.first(FIRST[has_tools])] * row.fails)
    if row.second is not None:
        pair.second.scripts.extend([row.second(SECOND[has_tools])] * 100)


def compare(
    expected: Outcome,
    seen: Seen,
    charge: Charge | None,
    streams: bool,
    has_tools: bool,
    prompt_tokens: dict[bool, int],
) -> list[str]:
    first, second = FIRST[has_tools], SECOND[has_tools]
    said = {
        BY_FIRST.sees: said_by(first),
        BY_SECOND.sees: said_by(second),
        BROKEN_OFF.sees: begun_by(first),
        BROKEN_OFF_LATE.sees: said_by(first),
    }
    delivered = said.get(expected.sees, "")
    charges = {
        "the first's usage": Charge(first.prompt_tokens, first.completion_tokens, "provider"),
        "the second's usage": Charge(second.prompt_tokens, second.completion_tokens, "provider"),
        "our count": Charge(prompt_tokens[has_tools], our_count(delivered), "counted"),
        "what was delivered": Charge(prompt_tokens[has_tools], our_count(delivered), "counted"),
    }
    calls = expected.calls
    if expected.reconnects and seen.calls == (calls[0] + 1, calls[1]):
        calls = seen.calls
    status = 200 if streams and expected.after_s > KEEPALIVE_S else expected.status
    pairs = {
        "status": (status, seen.status),
        "code": (expected.code, seen.code),
        "text": (delivered, seen.said),
        "calls": (calls, seen.calls),
        "charge": (charges.get(expected.charged), charge),
    }
    differences = [f"{name} {found} and not {wanted}" for name, (wanted, found) in pairs.items() if wanted != found]
    latest_s = expected.after_s + LATE_S if expected.after_s else 0
    if not (seen.moved_s <= latest_s and expected.after_s <= seen.moved_s + seen.took_s):
        differences.append(f"waited {seen.moved_s} and not {expected.after_s} s")
    return differences
