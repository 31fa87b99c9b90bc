"""Which parameters Muon moves, which AdamW, and that a stopped run goes on the same."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from dflash.train.optimiser import DrafterOptimiser

RATE = 0.01


class Parts(nn.Module):
    """A product, a norm and a codebook: one of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(24, 16, bias=False)
        self.norm = nn.Parameter(torch.ones(16))
        self.codebook = nn.Parameter(torch.zeros(5, 16))


def gradients(parts: Parts, seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    for parameter in parts.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=source)
    # One direction drowns the others.
    parts.product.weight.grad[0] *= 30.0


@pytest.fixture
def parts() -> Parts:
    torch.manual_seed(0)
    return Parts()


def test_a_product_moves_evenly_in_all_directions(parts: Parts) -> None:
    optimiser = DrafterOptimiser(parts, RATE)
    before = parts.product.weight.detach().clone()
    gradients(parts, seed=1)
    optimiser.step()
    strengths = torch.linalg.svdvals(parts.product.weight.detach() - before)
    given = torch.linalg.svdvals(parts.product.weight.grad)
    assert given.max() / given.min() > 30
    assert strengths.max() / strengths.min() < 5


def test_norms_and_codebooks_take_steps_of_the_learning_rate(parts: Parts) -> None:
    optimiser = DrafterOptimiser(parts, 1.0)
    optimiser.set_learning_rate(RATE)
    gradients(parts, seed=1)
    optimiser.step()
    moved = torch.cat([parts.norm.detach() - 1.0, parts.codebook.detach().flatten()])
    torch.testing.assert_close(moved.abs(), torch.full_like(moved, RATE))


def test_gradients_are_forgotten(parts: Parts) -> None:
    gradients(parts, seed=1)
    DrafterOptimiser(parts, RATE).zero_grad()
    assert [parameter.grad for parameter in parts.parameters()] == [None] * 3


def test_a_restored_optimiser_goes_on_as_if_never_stopped(parts: Parts) -> None:
    optimiser = DrafterOptimiser(parts, RATE)
    gradients(parts, seed=1)
    optimiser.step()
    torch.manual_seed(0)
    twin = Parts()
    twin.load_state_dict(parts.state_dict())
    resumed = DrafterOptimiser(twin, RATE)
    resumed.restore(deepcopy(optimiser.state()))
    for some, its_optimiser in ((parts, optimiser), (twin, resumed)):
        gradients(some, seed=2)
        its_optimiser.step()
    assert all(
        torch.equal(*pair) for pair in zip(parts.parameters(), twin.parameters(), strict=True)
    )
