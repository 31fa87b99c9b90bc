"""Which ids may come next, as one bit an id."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# What is added to the logits of eight ids, by the byte that holds their bits.
_BIASES = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"),
    np.float32(0.0),
    np.float32(-np.inf),
)


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
        biases = _BIASES.take(np.frombuffer(self.bits, dtype=np.uint8), axis=0).reshape(-1)
        return logits + torch.from_numpy(biases[: logits.shape[0]])
