"""The sizes and constants that fix what a drafter computes."""

from dataclasses import dataclass

from dflash.config import MAX_BLOCK_SIZE
from dflash.train.bounds import check_within


@dataclass(frozen=True, slots=True)
class DrafterShape:
    """Sizes of a drafter; with the parameters, all that is needed to run it.

    Attributes:
        hidden_size: Width of the residual stream, the target's own.
        intermediate_size: Width inside the MLP.
        num_layers: Draft layers.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Width of a head.
        rms_norm_eps: Added to the mean square before the root.
        rope_theta: Base of the rotary frequencies.
        max_position_embeddings: Longest context it is meant for, in tokens.
        block_size: Slots of a draft pass, the anchor's included.
        mask_token_id: Row of the target's embedding that fills the slots to predict.
        target_layer_ids: Tapped target layers, counted from 0, in order.
        num_target_layers: Layers of the target.
        vocab_size: Ids of the target.
        sliding_window: Keys must be nearer than this many positions. Distances beyond the longest
            sequence it was trained on were never seen; a window keeps them out of every context.
        conv_kernel_size: Taps of the dynamic convolution.
        conv_group_size: Consecutive channels that share one dynamic kernel.
        selector_rank: Width of the selector's codebooks.
        selector_top_k: Candidates the selector weighs a slot.
    """

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    vocab_size: int
    sliding_window: int = 512
    conv_kernel_size: int = 2
    conv_group_size: int = 16
    selector_rank: int = 32
    selector_top_k: int = 16

    def __post_init__(self) -> None:
        check_within("--layers", self.num_layers, 1)
        check_within("--block-size", self.block_size, 2, MAX_BLOCK_SIZE)
        check_within("--selector-rank", self.selector_rank, 1)
        # A window inside the block would be trained otherwise than it is served.
        check_within("--window", self.sliding_window, self.block_size)
