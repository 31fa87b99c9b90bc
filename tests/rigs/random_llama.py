"""The library's Llama with random weights, every size unlike the others."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def random_llama(num_layers: int, tie_word_embeddings: bool) -> LlamaForCausalLM:
    torch.manual_seed(0)
    library = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=112,
            hidden_size=96,
            intermediate_size=160,
            num_hidden_layers=num_layers,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=32,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
            max_position_embeddings=256,
            tie_word_embeddings=tie_word_embeddings,
        )
    ).eval()
    with torch.no_grad():
        for name, weight in library.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
            else:
                weight.normal_(std=weight.shape[-1] ** -0.5)
    return library
