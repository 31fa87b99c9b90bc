"""The sizes and constants that fix what an MTP head computes."""

from dataclasses import dataclass

from dflash.config import MAX_BLOCK_SIZE
from dflash.train.bounds import check_within


@dataclass(frozen=True, slots=True)
class MtpShape:
    """Sizes of an MTP head; with the parameters, all that is needed to run it.

    Attributes:
        hidden_size: Width of the residual stream, the target's own.
        intermediate_size: Width inside the MLP.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Width of a head.
        rms_norm_eps: Added to the mean square before the root.
        rope_theta: Base of the rotary frequencies.
        max_position_embeddings: Longest context it is meant for, in tokens.
        draft_length: Draft tokens of a chain.
        target_layer_ids: Target layers whose outputs the stored sequences hold. It is trained on
            what the last layer makes of the deepest of them, and served with that alone.
        num_target_layers: Layers of the target.
        vocab_size: Ids of the target.
        sliding_window: Keys must be nearer than this many positions. Distances beyond the longest
            sequence it was trained on were never seen; a window keeps them out of every context.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    draft_length: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    vocab_size: int
    sliding_window: int = 512

    def __post_init__(self) -> None:
        check_within("--draft-length", self.draft_length, 1, MAX_BLOCK_SIZE - 1)
        # A window inside the chain would be trained otherwise than it is served.
        check_within("--window", self.sliding_window, self.block_size)

    @property
    def block_size(self) -> int:
        """Tokens of a chain, the anchor's included."""
        return self.draft_length + 1
