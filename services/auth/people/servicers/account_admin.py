"""Serves AccountAdminService: accounts, their members, and the end of users and accounts."""

from legato_protos.auth.v1 import accounts_pb2_grpc as pb_grpc
from services.auth.accounts.servicer import AccountMethods
from services.auth.people.servicers.data import EndMethods
from services.auth.people.servicers.members import MemberMethods


class AccountAdminServicer(AccountMethods, MemberMethods, EndMethods, pb_grpc.AccountAdminServiceServicer):
    """The methods of both slices."""
