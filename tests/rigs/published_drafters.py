"""The config.json of published drafters, as far as a drafter reads them."""

SLIDING, FULL = "sliding_attention", "full_attention"

QWEN38_27B_V2 = {
    "architectures": ["DFlash2DraftModel"],
    "model_type": "qwen3",
    "is_causal": False,
    "attention_bias": False,
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "layer_types": [SLIDING] * 5,
    "sliding_window": 2048,
    "use_sliding_window": True,
    "max_window_layers": 5,
    "rope_parameters": {"rope_theta": 10000000, "rope_type": "default"},
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-6,
    "vocab_size": 248320,
    "num_target_layers": 64,
    "tie_word_embeddings": False,
    "eos_token_id": 248044,
    "pad_token_id": 248044,
    "bos_token_id": None,
    "initializer_range": 0.02,
    "dtype": "bfloat16",
    "transformers_version": "5.15.0",
    "dflash_config": {
        "block_size": 8,
        "mask_token_id": 248070,
        "target_layer_ids": [5, 19, 33, 47, 61],
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": 256,
        "selector_top_k": 16,
    },
}
MUSE_30B_V2 = QWEN38_27B_V2 | {
    "hidden_size": 6656,
    "intermediate_size": 19968,
    "num_target_layers": 52,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 500000, "rope_type": "default"},
    "max_position_embeddings": 131072,
    "vocab_size": 202048,
    "output_multiplier": 0.19611613513818404,
    "final_logit_softcapping": 20.0,
    "dflash_config": QWEN38_27B_V2["dflash_config"]
    | {"block_size": 16, "mask_token_id": 201818, "target_layer_ids": [1, 13, 25, 37, 49]},
}
QWEN3_4B = {
    "architectures": ["DFlashDraftModel"],
    "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 5,
    "layer_types": [FULL] * 5,
    "num_target_layers": 36,
    "rope_theta": 1000000,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
QWEN3_8B = QWEN3_4B | {"hidden_size": 4096, "intermediate_size": 12288}
QWEN35_4B = QWEN3_4B | {
    "num_target_layers": 32,
    "rope_theta": 10000000,
    "vocab_size": 248320,
    "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [1, 8, 15, 22, 29]},
}
QWEN36_27B = QWEN3_4B | {
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "layer_types": [SLIDING] * 4 + [FULL],
    "sliding_window": 2048,
    "num_target_layers": 64,
    "vocab_size": 248320,
    "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [1, 16, 31, 46, 61]},
}
QWEN25_05B = QWEN3_4B | {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_target_layers": 24,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 6, 11, 16, 21]},
}
MUSE_SPARK_V2 = QWEN38_27B_V2 | {
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "vocab_size": 202048,
    "dflash_config": QWEN38_27B_V2["dflash_config"]
    | {"mask_token_id": 201818, "target_layer_ids": [1, 16, 30, 44, 59]},
}
GPT_OSS = QWEN3_4B | {
    "num_hidden_layers": 8,
    "layer_types": [FULL] * 8,
    "hidden_size": 2880,
    "head_dim": 64,
    "vocab_size": 201088,
    "block_size": 8,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0},
    "dflash_config": {"mask_token_id": 200000, "target_layer_ids": [1, 6, 11, 16, 21]},
}
MIMO = QWEN3_4B | {
    "block_size": 8,
    "attention_sink_bias": True,
    "attention_value_scale": 0.612,
    "dflash_config": {
        "mask_token_id": 151669,
        "target_layer_ids": [0, 15, 31, 47, 69],
        "use_swa": True,
        "swa_window_size": 1024,
    },
}
SPECULATORS = {
    "architectures": ["DFlash2DraftModel"],
    "speculators_model_type": "dflash2",
    "speculators_config": {"algorithm": "dflash2"},
    "transformer_layer_config": {
        key: value
        for key, value in QWEN36_27B.items()
        if key not in ("architectures", "dflash_config", "block_size", "num_target_layers")
    },
    "draft_vocab_size": 248320,
    "block_size": 8,
    "mask_token_id": 248070,
    "aux_hidden_state_layer_ids": [2, 17, 32, 47, 62],
    "conv_kernel_size": 2,
    "conv_group_size": 16,
    "selector_rank": 256,
    "selector_top_k": 16,
}
# version, block, mask, taps, candidates' codebook rank
PUBLISHED = {
    "Qwen3.8-27B v2": (QWEN38_27B_V2, 2, 8, 248070, (5, 19, 33, 47, 61), 256),
    "Muse Glimmer v2": (MUSE_30B_V2, 2, 16, 201818, (1, 13, 25, 37, 49), 256),
    "Muse Spark v2": (MUSE_SPARK_V2, 2, 8, 201818, (1, 16, 30, 44, 59), 256),
    "Qwen3-4B": (QWEN3_4B, 1, 16, 151669, (1, 9, 17, 25, 33), 0),
    "Qwen3-8B": (QWEN3_8B, 1, 16, 151669, (1, 9, 17, 25, 33), 0),
    "Qwen3.5-4B": (QWEN35_4B, 1, 16, 248070, (1, 8, 15, 22, 29), 0),
    "Qwen3.6-27B": (QWEN36_27B, 1, 16, 248070, (1, 16, 31, 46, 61), 0),
    "Qwen2.5-0.5B": (QWEN25_05B, 1, 16, 151669, (1, 6, 11, 16, 21), 0),
    "speculators": (SPECULATORS, 2, 8, 248070, (1, 16, 31, 46, 61), 256),
}
