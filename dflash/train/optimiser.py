"""How a drafter's parameters move: matrices by Muon, everything else by AdamW."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

from dflash.errors import CheckpointError


class DrafterOptimiser:
    """Muon for the weights of products, AdamW for norms, kernels and codebooks.

    Muon (Jordan et al., 2024) moves a matrix along its orthogonalised momentum, so that a
    gradient of few strong directions trains the weak ones too. Its steps are scaled to the size
    of AdamW's (Liu et al., 2025): one learning rate serves both.

    Args:
        drafter: Whose parameters; a product's weight is two-dimensional and named ``weight``.
        learning_rate: Until `set_learning_rate` changes it.
    """

    def __init__(self, drafter: nn.Module, learning_rate: float) -> None:
        matrices, others = [], []
        for name, parameter in drafter.named_parameters():
            is_matrix = parameter.ndim == 2 and name.endswith(".weight")
            (matrices if is_matrix else others).append(parameter)
        self._parts: dict[str, Optimizer] = {
            "matrices": Muon(
                matrices, lr=learning_rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
            ),
            "others": AdamW(
                others, lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
            ),
        }

    def set_learning_rate(self, learning_rate: float) -> None:
        """Let the next steps be this large."""
        for part in self._parts.values():
            for group in part.param_groups:
                group["lr"] = learning_rate

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for part in self._parts.values():
            part.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for part in self._parts.values():
            part.step()

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, on the CPU."""
        return {name: _on_cpu(part.state_dict()) for name, part in self._parts.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, on the parameters' device.

        Raises:
            CheckpointError: The state is not of these optimisers.
        """
        try:
            for name, part in self._parts.items():
                part.load_state_dict(state[name])
        except (KeyError, ValueError, TypeError) as error:
            raise CheckpointError(
                "the run's state was begun with another optimiser; name another --run"
            ) from error


def _on_cpu(state: dict[str, Any]) -> dict[str, Any]:
    moments: dict[int, dict[str, Tensor]] = state["state"]
    moved = {
        index: {name: tensor.cpu() for name, tensor in of_parameter.items()}
        for index, of_parameter in moments.items()
    }
    return {**state, "state": moved}
