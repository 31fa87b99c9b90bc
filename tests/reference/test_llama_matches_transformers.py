"""Our forward against the library's, on a random model with every size unlike the others."""

import torch

from dflash.batch import Run, batch_from_runs
from dflash.kernels.build import native_build
from dflash.models.checkpoint import open_checkpoint
from dflash.models.registry import program_for
from tests.rigs.random_llama import random_llama
from tests.rigs.tiny_executor import logits_of, native_executor, torch_executor


def test_logits_equal_those_of_transformers(tmp_path):
    library = random_llama(num_layers=3, tie_word_embeddings=False)
    library.save_pretrained(tmp_path)
    ids = torch.randint(112, (1, 50))
    with torch.no_grad():
        expected = library(ids).logits[0]

    checkpoint = open_checkpoint(str(tmp_path), tmp_path)
    weights = dict(checkpoint.tensors())
    assert program_for(checkpoint.config).attention.rope_theta == 5000.0
    batch = batch_from_runs([Run(tuple(ids[0].tolist()), 0, range(4), 50)])
    forms = [torch_executor(checkpoint.config, weights=weights)]
    if native_build().library is not None:
        forms.append(native_executor(checkpoint.config, weights=weights))

    for executor in forms:
        assert torch.allclose(logits_of(executor, batch), expected, rtol=0, atol=2e-4)
