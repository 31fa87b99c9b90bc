"""The training's teacher against the library: the target's last layers over a tapped layer."""

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from dflash.models.checkpoint import open_checkpoint
from dflash.train.teacher import teacher_of


def random_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    library = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=112,
            hidden_size=96,
            intermediate_size=160,
            num_hidden_layers=4,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=32,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
            max_position_embeddings=256,
            tie_word_embeddings=True,
        )
    ).eval()
    with torch.no_grad():
        for name, weight in library.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
            else:
                weight.normal_(std=weight.shape[-1] ** -0.5)
    return library


@torch.no_grad()
def test_the_teacher_reads_from_a_tapped_layer_what_the_target_would_say(tmp_path):
    library = random_llama()
    library.save_pretrained(tmp_path)
    checkpoint = open_checkpoint(str(tmp_path), tmp_path)
    lengths = (20, 33)
    tapped: list[Tensor] = []
    expected: list[Tensor] = []
    for length in lengths:
        states = library(torch.randint(112, (1, length)), output_hidden_states=True).hidden_states
        # The outputs of layer 1, and of the whole with its last norm.
        tapped.append(states[2][0])
        expected.append(states[-1][0])
    teacher = teacher_of(checkpoint.config, checkpoint.tensor, last_tap=1)
    found = teacher.states(torch.cat(tapped), lengths)
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-5, atol=1e-5)
