"""Gives notices of keys that expire soon: seven days before, and one."""

from datetime import datetime
from typing import Final

from services.auth.core.store import Connection
from services.auth.core.times import DAY_US, from_micros
from services.auth.notices.records import Kind
from services.auth.notices.rules.recording import NoticeRecorder
from services.auth.notices.rules.words import id_of, make_notice
from services.auth.notices.store.notices import expiring_keys, record_expiry

# Before the expiry. The 1-day notice replaces the 7-day notice.
DAYS: Final = (1, 7)
AT_ONCE_MOST: Final = 200


def record_expiring_keys(connection: Connection, recorder: NoticeRecorder, now_us: int) -> None:
    """Records the notices that are due."""
    for days in DAYS:
        found = expiring_keys(connection, now_us, now_us + days * DAY_US, days, AT_ONCE_MOST)
        for key in found:
            data = {"expires_at": _rfc3339(from_micros(key.expires_at_us)), "days": days}
            notice_id = id_of(Kind.KEY_EXPIRES_SOON, key.key_id, str(key.expires_at_us), str(days))
            recorder.record(
                connection,
                make_notice(notice_id, key.account_id, Kind.KEY_EXPIRES_SOON, key.key_id, key.name, data, now_us),
            )
        record_expiry(connection, [key.key_id for key in found], days)


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
