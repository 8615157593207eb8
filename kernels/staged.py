"""A tensor at a fixed address on a device, written on the host and sent in one copy."""

import numpy as np
import torch
from torch import Tensor


class Staged:
    """`tensor` has `shape` and `dtype` and stays where it is."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._host = torch.zeros(shape, dtype=dtype, pin_memory=self._on_gpu)
        self._values = self._host.numpy()
        self._sent = torch.cuda.Event() if self._on_gpu else None
        self.tensor: Tensor = torch.zeros(shape, dtype=dtype, device=device) if self._on_gpu else self._host

    def writable(self) -> np.ndarray:
        """The values to be sent, as they were last written. Waits until the device has taken those."""
        if self._sent is not None:
            self._sent.synchronize()
        return self._values

    def send(self) -> Tensor:
        """Put what was written into `tensor`."""
        if self._sent is not None:
            self.tensor.copy_(self._host, non_blocking=True)
            self._sent.record()
        return self.tensor
