"""Which ids may come next, as one bit an id."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# By the bit: what is added to the logit of an id.
_BIAS = np.array([-np.inf, 0.0], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class TokenMask:
    """The ids that a grammar allows at one place.

    Attributes:
        bits: One an id, the lowest of the first byte first.
    """

    bits: bytes

    def allows(self, token_id: int) -> bool:
        """Whether this id may come."""
        return bool(self.bits[token_id >> 3] >> (token_id & 7) & 1)

    def applied(self, logits: Tensor) -> Tensor:
        """Return the row with -inf at every id that may not come; what is NaN or inf is seen still.

        Shapes:
            logits: ``[vocab]`` float32, not modified.
        """
        bits = np.frombuffer(self.bits, dtype=np.uint8)
        is_allowed = np.unpackbits(bits, count=logits.shape[0], bitorder="little")
        return logits + torch.from_numpy(_BIAS[is_allowed])
