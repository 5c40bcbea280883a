"""Books payments in metering."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from protos.metering.v1 import payment_booking_pb2 as pb
from protos.metering.v1.payment_booking_pb2_grpc import PaymentBookingServiceStub
from services.chassis.errors import unavailable
from services.chassis.rpc.certificates import Certificates
from services.chassis.rpc.channel import ChannelHolder, from_rpc_error, was_lost
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log

if TYPE_CHECKING:
    from protos.metering.v1.payment_booking_pb2_grpc import PaymentBookingServiceAsyncStub

# Less than Stripe waits for the answer to an event.
TIMEOUT_S: Final = 5.0


class BookingReplica:
    def __init__(self, address: str, certificates: Certificates | None) -> None:
        self._channel: grpc.aio.Channel | None = None
        self._connection = ChannelHolder(address, "metering", self._make_stub, certificates)
        self.load = 0

    def _make_stub(self, channel: grpc.aio.Channel) -> "PaymentBookingServiceAsyncStub":
        self._channel = channel
        return PaymentBookingServiceStub(channel)

    @property
    def stub(self) -> "PaymentBookingServiceAsyncStub":
        return self._connection.stub

    @property
    def usable(self) -> bool:
        state = self._channel.get_state(try_to_connect=True) if self._channel is not None else None
        return state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE

    @property
    def is_leaving(self) -> bool:
        return False

    async def close(self) -> None:
        await self._connection.close()


class MeteringClient:
    def __init__(self, addresses: str, certificates: Certificates | None, log: Log) -> None:
        self._replicas: Replicas[BookingReplica] = Replicas(
            "Metering", addresses, lambda address: BookingReplica(address, certificates), log
        )

    async def start(self) -> None:
        await self._replicas.start()

    async def close(self) -> None:
        await self._replicas.close()

    def count_usable(self) -> int:
        return self._replicas.count_usable()

    async def book(self, request: pb.BookPaymentRequest) -> None:
        await self._ask(lambda stub: stub.BookPayment(request, timeout=TIMEOUT_S, wait_for_ready=True))

    async def open_account(self, account_id: str) -> None:
        request = pb.OpenAccountRequest(account_id=account_id)
        await self._ask(lambda stub: stub.OpenAccount(request, timeout=TIMEOUT_S, wait_for_ready=True))

    async def _ask(self, question: "Callable[[PaymentBookingServiceAsyncStub], Awaitable[object]]") -> None:
        """Asks a replica, and another where it gives no answer: a repetition books nothing twice."""
        for replica in self._replicas.in_order()[:2]:
            try:
                await question(replica.stub)
                return
            except grpc.RpcError as error:
                if not was_lost(error):
                    raise from_rpc_error(error, "Metering") from None
        raise unavailable("Metering")
