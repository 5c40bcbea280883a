"""Backpressure on what is read of a connection."""

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl


class PausableFlowControl(FlowControl):
    """Keeps reading paused during a rest; the end of the rest resumes it, whatever paused it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_resting = False

    def rest(self) -> None:
        self._is_resting = True
        self.pause_reading()

    def end_rest(self) -> None:
        self._is_resting = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._is_resting:
            super().resume_reading()
