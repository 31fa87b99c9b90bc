"""A weight that several compiled programs name lies in memory once."""

import pytest
import torch

from dflash.errors import KernelError
from dflash.kernels.packed_weights import PackedWeights
from dflash.kernels.packing import interleave_gate, pack
from dflash.program import Convolve, Embed, Epilogue, HeadNorm, Linear, RmsNorm, Select

WEIGHTS = {
    "table": torch.arange(48.0 * 32).reshape(48, 32),
    "gate": torch.ones(16, 32),
    "up": torch.full((16, 32), 2.0),
    "norm": torch.arange(32.0),
    "base": torch.arange(2 * 2 * 32.0).reshape(2, 2, 32),
}


class Checkpoint:
    """Counts how often each tensor is read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def __call__(self, name: str) -> torch.Tensor:
        self.read.append(name)
        return WEIGHTS[name]


def test_what_two_programs_name_is_read_and_packed_once():
    store, target, drafter = PackedWeights(), Checkpoint(), Checkpoint()
    borrowing = PackedWeights(lent=store)
    embed, head = Embed("table", "residual"), Linear("normed", ("table",), "logits")

    first = [store.of(each, target, torch.bfloat16) for each in (embed, head)]
    again = [
        borrowing.of(Embed("table", "elsewhere"), drafter, torch.bfloat16),
        borrowing.of(
            Linear("rows", ("table",), "logits", Epilogue.FLOAT32), drafter, torch.bfloat16
        ),
    ]

    assert target.read == ["table", "table"]
    assert drafter.read == []
    for one, other in zip(first, again, strict=True):
        assert one is not None
        assert other is not None
        assert one.data_ptr() == other.data_ptr()


def test_two_drafters_of_one_target_keep_weights_of_one_name_apart():
    store = PackedWeights()
    first, second = PackedWeights(lent=store), PackedWeights(lent=store)
    norm = RmsNorm("x", "norm", "y", 1e-6)

    one = first.of(norm, lambda _name: torch.ones(32), torch.float32)
    other = second.of(norm, lambda _name: torch.zeros(32), torch.float32)

    assert torch.equal(one, torch.ones(32))
    assert torch.equal(other, torch.zeros(32))
    assert torch.equal(first.of(norm, WEIGHTS.__getitem__, torch.float32), one)


def test_each_layout_and_type_is_a_tensor_of_its_own():
    store, weight = PackedWeights(), WEIGHTS.__getitem__

    table = store.of(Embed("table", "x"), weight, torch.float32)
    head = store.of(Linear("x", ("table",), "y"), weight, torch.float32)
    narrow = store.of(Embed("table", "x"), weight, torch.bfloat16)
    stacked = store.of(Linear("x", ("gate", "up"), "y"), weight, torch.float32)
    gated = store.of(Linear("x", ("gate", "up"), "y", Epilogue.SILU_MUL), weight, torch.float32)

    assert torch.equal(table, WEIGHTS["table"])
    assert torch.equal(head, pack([WEIGHTS["table"]], torch.float32))
    assert torch.equal(narrow, WEIGHTS["table"].bfloat16())
    assert torch.equal(stacked, pack([WEIGHTS["gate"], WEIGHTS["up"]], torch.float32))
    interleaved = interleave_gate(WEIGHTS["gate"], WEIGHTS["up"])
    assert torch.equal(gated, pack([interleaved], torch.float32))


def test_norms_and_base_kernels_keep_their_shape_and_the_rest_has_none():
    store, weight = PackedWeights(), WEIGHTS.__getitem__

    for operation, name in (
        (RmsNorm("x", "norm", "y", 1e-6), "norm"),
        (HeadNorm("heads", "norm", 0, 1, 1e-6), "norm"),
        (Convolve("x", "kernel", "base", "y", 0), "base"),
    ):
        assert torch.equal(store.of(operation, weight, torch.float32), WEIGHTS[name])
    assert store.of(Select("x", "y"), weight, torch.float32) is None


def test_a_width_that_cannot_be_packed_is_refused_and_not_kept():
    store = PackedWeights()
    gated = Linear("x", ("gate", "up"), "y", Epilogue.SILU_MUL)

    for _ in range(2):
        with pytest.raises(KernelError, match="multiple of 16"):
            store.of(gated, lambda _: torch.ones(20, 32), torch.float32)
    assert store.of(gated, WEIGHTS.__getitem__, torch.float32) is not None
