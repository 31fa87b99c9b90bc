"""A drafter's checkpoint on disk: every tensor checked by name and shape before one is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash.drafters.config import (
    CONV_GROUP,
    CONV_TAPS,
    DFlashConfig,
    dflash_config_from_json,
    names_dflash,
)
from dflash.drafters.mtp_config import MtpConfig, is_own_mtp, mtp_config_from_json, names_mtp
from dflash.errors import CheckpointError
from dflash.models.weight_files import WeightFiles, open_weight_files, read_json, some

if TYPE_CHECKING:
    from torch import Tensor

EMBEDDING = "embed_tokens.weight"
HEAD = "lm_head.weight"
_TARGET_IDS = "d2t"
# Beginnings that other tools write, and the published ones.
_ALIASES = (
    ("midlayer.", "layers.0."),
    ("encoder.fc.", "fc."),
    ("encoder.output_norm_enc.", "hidden_norm."),
)
CODEBOOKS = ("candidate_selector.predecessor_codebook", "candidate_selector.successor_codebook")
# Which target ids a reduced head knows, as d2t says too, and what rope_theta says.
_REPEATED = ("t2d", "rotary_emb.inv_freq")
_MTP = "mtp."
_SIDES = 2

DrafterConfig = DFlashConfig | MtpConfig
"""The config of any kind of drafter."""


@dataclass(frozen=True, slots=True)
class DrafterCheckpoint:
    """A drafter's checkpoint whose config, names and shapes have been checked.

    Attributes:
        folder: Where it lies.
        config: Its sizes and constants.
        files: The files of its tensors.
        stored_names: Under which name the file holds each tensor, by its published name. Copies
            of the target's embedding table and head are among them where a DFlash file has them;
            what a target's checkpoint holds beside its MTP head is not.
    """

    folder: Path
    config: DrafterConfig
    files: WeightFiles
    stored_names: Mapping[str, str]

    def tensor(self, name: str) -> "Tensor":
        """Return one tensor as stored, by its published name; `WeightFiles.tensors` says more."""
        return self.files.tensor(self.stored_names[name])

    def target_ids(self) -> "Tensor | None":
        """Return the target id of each column of the head; None where a column is its id.

        Shapes:
            returns: ``[draft_vocab_size]`` int64, strictly ascending.

        Raises:
            CheckpointError: The map leaves the target's vocabulary, or is not ascending.
        """
        if _TARGET_IDS not in self.stored_names:
            return None
        import torch

        offsets = self.tensor(_TARGET_IDS)
        if offsets.dtype == torch.bool:
            raise CheckpointError(f"{self.folder}: d2t is stored as BOOL; it must hold ids")
        if not self.config.is_reduced:
            if offsets.any():
                raise CheckpointError(
                    f"{self.folder}: d2t moves ids, but the head knows all of them: "
                    f"draft_vocab_size is vocab_size, {self.config.vocab_size}; one is wrong"
                )
            return None
        ids = offsets + torch.arange(len(offsets))
        # Where columns ascend, a tie goes to the lower target id by going to the lower column.
        ascends = bool((ids.diff() > 0).all())
        if not ascends or int(ids[0]) < 0 or int(ids[-1]) >= self.config.vocab_size:
            raise CheckpointError(
                f"{self.folder}: d2t maps draft ids to target ids {int(ids.min())} to "
                f"{int(ids.max())}; they must ascend strictly within "
                f"[0, {self.config.vocab_size}): target id = draft id + d2t[draft id]"
            )
        return ids


def open_drafter_checkpoint(folder: Path) -> DrafterCheckpoint:
    """Return a drafter's checkpoint, checked but not yet read.

    Raises:
        CheckpointError: A file is missing or damaged, the config names what we do not compute, or
            a tensor is missing, misshapen or one that our drafter would leave out.
    """
    path = folder / "config.json"
    content = read_json(path)
    try:
        config = config_from_json(content)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    files = open_weight_files(folder, index_names=(_TARGET_IDS, "t2d"))
    if isinstance(config, MtpConfig):
        # Beside its head, a target's checkpoint holds the target.
        is_alone = is_own_mtp(content)
        stored_names = {
            name: name
            for name in files.shapes
            if is_alone or name.startswith(_MTP) or name == _TARGET_IDS
        }
    else:
        stored_names = _by_published_name(files)
    _check_tensors(config, files, stored_names)
    return DrafterCheckpoint(folder, config, files, stored_names)


def drafter_tensor_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    """Return the published name and shape of every tensor of a drafter of this config.

    Source:
        The headers of the published DFlash and DFlash 2 files, and of the published Qwen3.5
        checkpoints for MTP; the map of a reduced head as speculators' files have it.
    """
    shapes = _mtp_shapes(config) if isinstance(config, MtpConfig) else _dflash_shapes(config)
    if config.is_reduced:
        shapes[_TARGET_IDS] = (config.draft_vocab_size,)
    return shapes


def config_from_json(content: Mapping[str, Any]) -> DrafterConfig:
    """Return the config of a drafter of whichever kind a config.json names.

    Raises:
        CheckpointError: A value is missing or impossible; the message starts with the key.
    """
    if not names_dflash(content) and names_mtp(content):
        return mtp_config_from_json(content)
    return dflash_config_from_json(content)


def _mtp_shapes(config: MtpConfig) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden_size
    own = {
        "pre_fc_norm_embedding.weight": (hidden,),
        "pre_fc_norm_hidden.weight": (hidden,),
        "fc.weight": (hidden, 2 * hidden),
        "norm.weight": (hidden,),
    }
    layer = {f"layers.0.{name}": shape for name, shape in _layer_shapes(config).items()}
    return {f"{_MTP}{name}": shape for name, shape in (own | layer).items()}


def _dflash_shapes(config: DFlashConfig) -> dict[str, tuple[int, ...]]:
    hidden, taps = config.hidden_size, len(config.target_layer_ids)
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, taps * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    layer = _layer_shapes(config) | _convolution_shapes(config)
    for index in range(config.attention.num_layers):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    if config.selector_rank:
        shapes |= dict.fromkeys(CODEBOOKS, (config.vocab_size, config.selector_rank))
        shapes["candidate_selector.hidden_projection.weight"] = (config.selector_rank, hidden)
    return shapes


def _layer_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner, heads = config.hidden_size, config.intermediate_size, config.attention
    query, key_value = (n * heads.head_dim for n in (heads.num_heads, heads.num_kv_heads))
    return {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (key_value, hidden),
        "self_attn.v_proj.weight": (key_value, hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "self_attn.q_norm.weight": (heads.head_dim,),
        "self_attn.k_norm.weight": (heads.head_dim,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }


def _convolution_shapes(config: DFlashConfig) -> dict[str, tuple[int, ...]]:
    if config.version == 1:
        return {}
    hidden, shapes = config.hidden_size, {}
    for module in ("attention_conv", "mlp_conv"):
        shapes[f"{module}.base_kernel"] = (_SIDES, CONV_TAPS, hidden)
        kernels = _SIDES * CONV_TAPS * hidden // CONV_GROUP
        shapes[f"{module}.kernel_projection.weight"] = (kernels, hidden)
    return shapes


def _by_published_name(files: WeightFiles) -> dict[str, str]:
    stored: dict[str, str] = {}
    for name in files.shapes:
        published = _published(name)
        if published in stored:
            raise CheckpointError(
                f"{files.folder} holds {published} twice, as {stored[published]} and as {name}; "
                "remove one"
            )
        stored[published] = name
    return stored


def _published(name: str) -> str:
    name = name.removeprefix("model.")
    for alias, published in _ALIASES:
        if name.startswith(alias):
            name = published + name.removeprefix(alias)
    # Some tools save the codebooks as embedding modules.
    bare = name.removesuffix(".weight")
    return bare if bare in CODEBOOKS else name


def _check_tensors(
    config: DrafterConfig, files: WeightFiles, stored_names: Mapping[str, str]
) -> None:
    expected = drafter_tensor_shapes(config)
    if missing := [name for name in expected if name not in stored_names]:
        raise CheckpointError(
            f"{files.folder} lacks {some(missing)}, which its config.json asks for; download it "
            "again"
        )
    allowed = expected | {
        EMBEDDING: (config.vocab_size, config.hidden_size),
        HEAD: (config.draft_vocab_size, config.hidden_size),
        _TARGET_IDS: (config.draft_vocab_size,),
    }
    extra = [
        stored
        for name, stored in stored_names.items()
        if name not in allowed and name not in _REPEATED
    ]
    if extra:
        raise CheckpointError(
            f"{files.folder} also holds {some(extra)}, which this engine's {config.kind} "
            "drafter would leave out; use a drafter of the plain architecture"
        )
    for name in stored_names.keys() & allowed.keys():
        found = files.shapes[stored_names[name]]
        if found != allowed[name]:
            raise CheckpointError(
                f"{files.folder}: {stored_names[name]} has shape {list(found)}, its config.json "
                f"says {list(allowed[name])}; the two files belong to different drafters"
            )
