"""Growth and verification of rounds as one CUDA graph.

A graph replays the same kernels on the same memory: the inputs of a round are copied into buffers
that never move, and shapes are those of the round that was captured. Not tried on a GPU so far.

Source: PyTorch's `torch.cuda.graph`; its notes on CUDA semantics ask for the warm-up on a side
stream.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from rheocheck.errors import InputError

Outcome = TypeVar("Outcome")

_WARM_UPS = 3


class CapturedRound(Generic[Outcome]):
    """A function of tensors that was captured once and is replayed on new inputs.

    Attributes:
      outcome: Of the last replay; the next one overwrites its tensors.
    """

    def __init__(self, run: Callable[..., Outcome], inputs: Sequence[Tensor]) -> None:
        """Warm up and capture.

        Args:
          run: The round, say `grow` with `check=False`, the target and `verify`. It may read no
            value on the host, and what else it reads must stay where it is.
          inputs: Of one round, all on one CUDA device; they are copied.

        Raises:
          InputError: No inputs, or one that is on no CUDA device or on another than the first.
        """
        if not inputs:
            raise InputError("no inputs were given; a captured round needs at least one tensor")
        for number, tensor in enumerate(inputs):
            if tensor.device.type != "cuda" or tensor.device != inputs[0].device:
                raise InputError(
                    f"input {number} is on {tensor.device}; required: all on one CUDA device, as "
                    "only CUDA rounds can be captured"
                )
        self._inputs = [tensor.clone() for tensor in inputs]
        with torch.cuda.device(inputs[0].device):
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARM_UPS):
                    run(*self._inputs)
            torch.cuda.current_stream().wait_stream(side)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self.outcome = run(*self._inputs)

    def __call__(self, *inputs: Tensor) -> Outcome:
        """Replay on other inputs; nothing here waits for the device.

        Args:
          inputs: As many as were captured, of the same shapes and dtypes.

        Returns:
          `outcome`.

        Raises:
          InputError: Another number of inputs, or another shape or dtype than was captured.
        """
        held = [(tuple(tensor.shape), tensor.dtype) for tensor in self._inputs]
        given = [(tuple(tensor.shape), tensor.dtype) for tensor in inputs]
        if held != given:
            raise InputError(f"inputs {given} were given; required: {held}, as was captured")
        for buffer, tensor in zip(self._inputs, inputs, strict=True):
            buffer.copy_(tensor)
        self._graph.replay()
        return self.outcome
