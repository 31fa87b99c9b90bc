"""A drafter's config.json with any JSON in it: it is read, or refused as a checkpoint is."""

import contextlib

import hypothesis.strategies as st
import pytest
from hypothesis import given

from benchmarks.rigs.tiny_drafter import TinyDrafter, tiny_drafter_json
from benchmarks.rigs.tiny_mtp import TinyMtp, tiny_mtp_json
from dflash.drafters.checkpoint import config_from_json, drafter_tensor_shapes
from dflash.errors import CheckpointError
from dflash.models.config import model_config_from_json
from tests.rigs.published_drafters import QWEN38_27B_V2, SPECULATORS
from tests.rigs.tiny_checkpoint import TINY_CONFIG

TARGET = model_config_from_json(TINY_CONFIG)
CONTENTS = [
    tiny_drafter_json(TinyDrafter(version=1, window=20), TARGET),
    QWEN38_27B_V2,
    SPECULATORS,
    tiny_mtp_json(TinyMtp(window=20, draft_vocab_size=24), TARGET),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from([0, -1, 1, 10**9, 10**400, [], [[]], {}, [{}], "sliding_attention"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip


KEYS = sorted(
    {key for content in CONTENTS for key in content}
    | {
        "attention_bias", "attention_sink_bias", "attn_output_gate", "aux_hidden_norms",
        "causal", "dspark_noise_token_id", "final_logit_softcapping", "has_own_lm_head",
        "hidden_act", "input_embedding_scale", "mtp_num_hidden_layers", "model_type",
        "output_multiplier", "partial_rotary_factor", "quantization_config", "rope_scaling",
        "rope_theta", "sliding_window_non_causal", "swa_window_size", "target_fingerprint",
        "target_hidden_size", "text_config", "use_sliding_window", "use_swa",
        "speculators_model_type", "transformer_layer_config", "aux_hidden_state_layer_ids",
    }
)  # fmt: skip
NESTS = ["dflash_config", "mtp_config", "rope_parameters", "transformer_layer_config"]


def read(content: dict) -> None:
    with contextlib.suppress(CheckpointError):
        drafter_tensor_shapes(config_from_json(content))


@pytest.mark.parametrize("content", CONTENTS)
@given(changes=st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=3))
def test_any_value_at_the_top_is_read_or_refused(content: dict, changes: dict):
    read(content | changes)


@pytest.mark.parametrize("content", CONTENTS)
@given(
    nest=st.sampled_from(NESTS),
    changes=st.dictionaries(st.sampled_from([*KEYS, "rope_type"]), JSON, min_size=1, max_size=3),
)
def test_any_value_within_is_read_or_refused(content: dict, nest: str, changes: dict):
    read(content | {nest: {**content.get(nest, {}), **changes}})


@given(content=st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_object_is_read_or_refused(content: dict):
    read(content)
