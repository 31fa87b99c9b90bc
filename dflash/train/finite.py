"""Numbers that training may keep: finite ones."""

import math
from collections.abc import Mapping

from torch import Tensor

from dflash.errors import EngineError


class DivergedError(EngineError):
    """Training came to numbers that are not finite. What was saved before is kept."""


def check_loss(step: int, loss: float, grad_norm: float) -> None:
    """Refuse to take a step from which no drafter comes back.

    Args:
        step: The step's number, from 1.
        loss: What is minimised.
        grad_norm: Length of its gradient.

    Raises:
        DivergedError: One of the two is not finite.
    """
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        raise _diverged(step, f"the loss is {loss}, its gradient's length {grad_norm}")


def check_finite(tensors: Mapping[str, Tensor], step: int) -> None:
    """Refuse parameters of which one is not finite.

    Args:
        tensors: By name.
        step: The last step's number.

    Raises:
        DivergedError: It names the first such tensor.
    """
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise _diverged(step, f"{name} holds numbers that are not finite")


def _diverged(step: int, reason: str) -> DivergedError:
    return DivergedError(
        f"training diverged at step {step}: {reason}; lower --learning-rate; the last state saved "
        "is kept"
    )
