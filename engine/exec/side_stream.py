"""Work beside the main stream of a device: copies that only the next pass waits for."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """A second stream on a GPU; on other devices all work runs where it is called."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._busy = False

    @contextmanager
    def work(self) -> Iterator[None]:
        """What is called inside runs behind all earlier work of the main stream, and beside its later
        work."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield
        self._busy = True

    def join(self) -> None:
        """Later work of the main stream runs behind what the side stream was given."""
        if self._stream is not None and self._busy:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
            self._busy = False
