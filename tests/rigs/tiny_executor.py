"""A small random Llama, run by any executor over pages of its own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dflash.batch import Batch
from dflash.kernels.build import native_build
from dflash.kernels.native import NativeExecutor
from dflash.kernels.pages import allocate_pages, rotary_table
from dflash.kernels.torch_executor import TorchExecutor
from dflash.kernels.torch_forms import FixedRows, OneQuery
from dflash.models.config import ModelConfig, tensor_shapes
from dflash.models.registry import program_for
from dflash.runner import Executor

NUM_PAGES = 160


def tiny_config(**changes: int) -> ModelConfig:
    sizes = {
        "vocab_size": 80,
        "hidden_size": 64,
        "num_layers": 2,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 64,
        "intermediate_size": 96,
        "max_position_embeddings": 1024,
    }
    return ModelConfig(
        family="llama",
        rope_theta=10000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        eos_token_ids=(2,),
        bos_token_id=1,
        **(sizes | changes),
    )


def random_weights(config: ModelConfig, seed: int = 0) -> dict[str, Tensor]:
    """Weights that keep the residual's size, so that no layer drowns the others."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * shape[-1] ** -0.5
        if len(shape) > 1
        else 1.0 + 0.1 * torch.randn(shape, generator=generator)
        for name, shape in tensor_shapes(config).items()
    }


def native_executor(
    config: ModelConfig,
    dtype: torch.dtype = torch.float32,
    weights: dict[str, Tensor] | None = None,
    num_threads: int = 1,
) -> NativeExecutor:
    """The compiled form; skips the test where it cannot be built, and says why."""
    build = native_build()
    if build.library is None:
        pytest.skip(f"no compiled kernels: {build.why_unavailable}")
    program = program_for(config)
    return NativeExecutor(
        build.library,
        program,
        _getter(config, weights),
        allocate_pages(program.attention, NUM_PAGES, dtype),
        rotary_table(program.attention, config.max_position_embeddings),
        num_threads,
    )


def torch_executor(
    config: ModelConfig,
    dtype: torch.dtype = torch.float32,
    weights: dict[str, Tensor] | None = None,
) -> TorchExecutor:
    """The exact reference form."""
    program = program_for(config)
    return TorchExecutor(
        program,
        _getter(config, weights),
        allocate_pages(program.attention, NUM_PAGES, dtype),
        rotary_table(program.attention, config.max_position_embeddings),
        FixedRows(8),
        OneQuery(),
    )


def logits_of(executor: Executor, batch: Batch) -> Tensor:
    """Logits that outlive the step."""
    return executor.forward(batch).logits.clone()


def _getter(config: ModelConfig, weights: dict[str, Tensor] | None) -> Callable[[str], Tensor]:
    return (weights or random_weights(config)).__getitem__
