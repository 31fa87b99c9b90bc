"""What we read of the arguments of `ray.serve.llm:build_openai_app`, and what we refuse by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from deployments.guard.settings import RequestBounds


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """Which drafter, and how far: as vLLM spells it.

    Attributes:
        method: What kind the drafter is; it says so itself, too.
        model: Its folder or hub id; ``mtp`` alone takes the head in the target's own checkpoint.
        num_speculative_tokens: Draft tokens; None leaves them to the policy.
    """

    method: Literal["dflash", "mtp"] | None = None
    model: str | None = None
    num_speculative_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class EngineKwargs:
    """The arguments of vLLM's engine that ours has, too; what is left out is ours to choose."""

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    dtype: Literal["auto", "bfloat16", "float32", "float"] | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    block_size: int | None = None
    enable_prefix_caching: bool | None = None
    speculative_config: SpeculativeConfig = field(default_factory=SpeculativeConfig)


@dataclass(frozen=True, slots=True)
class ModelLoadingConfig:
    """Attributes: the name that clients ask for, and a folder or hub id where it is another."""

    model_id: str
    model_source: str | None = None


@dataclass(frozen=True, slots=True)
class ExperimentalConfigs:
    """Attributes: replicas of the ingress; Serve's default where it is left out."""

    num_ingress_replicas: int | None = None


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """One model."""

    model_loading_config: ModelLoadingConfig
    engine_kwargs: EngineKwargs = field(default_factory=EngineKwargs)
    deployment_config: dict[str, Any] = field(default_factory=dict)
    accelerator_type: str | None = None
    runtime_env: dict[str, Any] | None = None
    experimental_configs: ExperimentalConfigs = field(default_factory=ExperimentalConfigs)


@dataclass(frozen=True, slots=True)
class LlmArgs:
    """All arguments, and beside them those of ours that Ray has no word for."""

    llm_configs: tuple[LlmConfig, ...]
    ingress_deployment_config: dict[str, Any] = field(default_factory=dict)
    keys_file: str | None = None
    requests: RequestBounds = field(default_factory=RequestBounds)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A key that we know and do not read.

    Attributes:
        fix: What to do instead.
        neutral: Values that ask for nothing but what is done here anyway.
    """

    fix: str
    neutral: tuple[object, ...] = ()


_ONE_DEVICE = Refusal("A replica here is one process on one device: 1, or leave it out.", (1,))
_NO_LORA = Refusal("Adapters are not served here; leave it out.", (False,))
_NO_CODE = Refusal("No code of a checkpoint is run here; leave it out.", (False,))
_ENGINE_REFUSED: Mapping[str, Refusal] = {
    "tensor_parallel_size": _ONE_DEVICE,
    "pipeline_parallel_size": _ONE_DEVICE,
    "data_parallel_size": _ONE_DEVICE,
    "distributed_executor_backend": Refusal("A replica here is one process; leave it out."),
    "trust_remote_code": _NO_CODE,
    "enable_lora": _NO_LORA,
    "quantization": Refusal("Weights are served as bfloat16 or float32; leave it out."),
    "kv_cache_dtype": Refusal("Pages have the type of dtype; leave it out.", ("auto",)),
    "load_format": Refusal("Only safetensors are read; leave it out.", ("auto", "safetensors")),
    "enable_chunked_prefill": Refusal("Prompts are always read in chunks.", (True,)),
    "enforce_eager": Refusal("There are no graphs here; leave it out.", (True, False)),
    "seed": Refusal("A request has its own seed; leave it out.", (0,)),
    "served_model_name": Refusal("Name the model in model_loading_config.model_id."),
    "model": Refusal("Name it in model_loading_config.model_source."),
    "tokenizer": Refusal("The tokenizer is the checkpoint's own; leave it out."),
    "chat_template": Refusal("The chat template is the checkpoint's own; leave it out."),
    "guided_decoding_backend": Refusal("There is one way to constrain output; leave it out."),
    "num_gpu_blocks_override": Refusal("Size the pages by kv_cache_memory_bytes."),
    "swap_space": Refusal("Pages are not swapped out; leave it out.", (0,)),
    "cpu_offload_gb": Refusal("Weights stay on the device; leave it out.", (0,)),
    "kv_transfer_config": Refusal("Prefill and decode share a replica; leave it out."),
    "disable_log_stats": Refusal("Statistics are always kept; leave it out.", (False,)),
}
REFUSED: Mapping[tuple[str, ...], Mapping[str, Refusal]] = {
    (): {
        "ingress_cls_config": Refusal("The ingress is this server's own; leave it out.", ({},)),
    },
    ("llm_configs",): {
        "llm_engine": Refusal("The engine is this server's own; leave it out."),
        "server_cls": Refusal("The server is this one; leave it out."),
        "lora_config": _NO_LORA,
        "placement_group_config": Refusal(
            "A replica is one process: ask for its needs in deployment_config.ray_actor_options."
        ),
        "accelerator_config": Refusal(
            "Name the card in accelerator_type; a replica has one.", ({"kind": "cpu"},)
        ),
        "callback_config": Refusal("Nothing is called while a model loads; leave it out.", ({},)),
        "log_engine_metrics": Refusal("Metrics are always kept; leave it out.", (True,)),
    },
    ("llm_configs", "model_loading_config"): {
        "tokenizer_source": Refusal("The tokenizer is the checkpoint's own; leave it out."),
    },
    ("llm_configs", "engine_kwargs"): _ENGINE_REFUSED,
    ("llm_configs", "experimental_configs"): {
        "stream_batching_interval_ms": Refusal(
            "Tokens are sent with the step that made them, never on a timer; leave it out.", (0,)
        ),
    },
}
"""Keys that are not read, by the mapping that holds them; positions in lists left out."""
