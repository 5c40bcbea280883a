"""Converts users and their sessions to messages."""

from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core.records.users import User, UserSession
from services.auth.core.session_life import expires_at_us
from services.auth.core.times import hour_of
from services.auth.sign_in.records import Client, UserSummary
from services.auth.sign_in.rules.sessions import SignedIn
from services.chassis.rpc.messages import to_message, to_timestamp


def to_user(summary: UserSummary) -> pb.User:
    return to_message(pb.User, summary, summary.user, has_password=summary.passwords > 0)


def to_client(client: pb.Client) -> Client:
    return Client(client.address, client.browser)


def to_session(session: UserSession, user: User) -> pb.Session:
    return to_message(
        pb.Session,
        session,
        last_seen_time=to_timestamp(hour_of(session.last_seen_us)),
        expire_time=to_timestamp(expires_at_us(session, user)),
    )


def to_signed_in(signed_in: SignedIn) -> pb.SignedIn:
    return pb.SignedIn(
        session_token=signed_in.token,
        session=to_session(signed_in.session, signed_in.summary.user),
        user=to_user(signed_in.summary),
    )
