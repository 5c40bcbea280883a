"""Converts the outcomes of chats between the .proto's messages and the domain."""

import re
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.metering.v1 import chat_outcomes_pb2 as pb
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence
from services.metering.credit.records import HOUR_US
from services.metering.messages import checked_id, invalid, to_microseconds
from services.metering.reports.chat_outcomes import OutcomesQuery, OutcomesReport
from services.metering.reports.store.failures import Failures

# Edges count no more between two reports.
REPORTED_MOST: Final = 20_000
PARTS_MOST: Final = 400
KEYS_MOST: Final = 1_000
# Also one of a newer release.
_REASON: Final = re.compile(r"[A-Z_]{1,40}")


def to_failures(request: pb.ReportFailuresRequest) -> list[Failures]:
    if len(request.failures) > REPORTED_MOST:
        raise invalid(Sentence("failures_most", most=REPORTED_MOST), "failures")
    return [_to_failures(each) for each in request.failures]


def _to_failures(given: pb.FailureCount) -> Failures:
    if not _REASON.fullmatch(given.reason) or given.requests < 1:
        raise invalid(Sentence("failure_incomplete"), "failures")
    return Failures(
        account_id=checked_id(given.account_id, "account_id"),
        hour_us=to_microseconds(given.time, "time") // HOUR_US * HOUR_US,
        key_id=checked_id(given.key_id, "key_id"),
        class_id=checked_id(given.class_id, "class_id") if given.class_id else "",
        reason=given.reason,
        is_cut=given.is_cut,
        chats=given.requests,
    )


def to_outcomes_query(request: pb.GetChatOutcomesRequest) -> OutcomesQuery:
    if not 1 <= len(request.start_times) <= PARTS_MOST or not request.HasField("end_time"):
        raise invalid(Sentence("outcome_parts", most=PARTS_MOST), "start_times")
    if len(request.key_ids) > KEYS_MOST:
        raise invalid(Sentence("outcome_keys_most", most=KEYS_MOST), "key_ids")
    return OutcomesQuery(
        account_id=checked_id(request.account_id, "account_id"),
        starts_us=tuple(_to_us(each) for each in request.start_times),
        end_us=_to_us(request.end_time),
        key_ids=tuple(checked_id(key_id, "key_ids") for key_id in request.key_ids),
    )


def _to_us(given: Timestamp) -> int:
    if given.nanos:
        raise invalid(Sentence("part_full_hour"), "start_times")
    return to_microseconds(given, "start_times")


def from_outcomes(report: OutcomesReport) -> pb.GetChatOutcomesResponse:
    return to_message(pb.GetChatOutcomesResponse, report)
