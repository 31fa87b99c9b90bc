"""The training's teacher against the library: the target's last layers over a tapped layer."""

import torch
from torch import Tensor

from dflash.models.checkpoint import open_checkpoint
from dflash.train.teacher import teacher_of
from tests.rigs.random_llama import random_llama


@torch.no_grad()
def test_the_teacher_reads_from_a_tapped_layer_what_the_target_would_say(tmp_path):
    library = random_llama(num_layers=4, tie_word_embeddings=True)
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
