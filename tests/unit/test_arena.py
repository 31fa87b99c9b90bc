"""Tensors from the arena are ordinary tensors that do not overlap and outlive it."""

import gc

import torch

from dflash.kernels.arena import Arena


def test_tensors_are_zeroed_aligned_and_apart():
    arena = Arena()
    first = arena.zeros((3, 5), torch.bfloat16)
    second = arena.zeros((2,), torch.float32)
    first.fill_(7.0)

    assert first.shape == (3, 5)
    assert second.tolist() == [0.0, 0.0]
    assert first.data_ptr() % 64 == 0
    assert second.data_ptr() % 64 == 0


def test_a_tensor_larger_than_a_chunk_has_one_of_its_own():
    large = Arena().zeros((20 << 20,), torch.float32)
    large[-1] = 3.0

    assert large[-1] == 3.0
    assert large[0] == 0.0


def test_a_copy_outlives_the_arena():
    source = torch.arange(1000, dtype=torch.float32)
    copies = [Arena().copy(source) for _ in range(3)]
    gc.collect()

    assert all(torch.equal(copy, source) for copy in copies)


def test_memory_is_taken_where_large_pages_are_not_granted(monkeypatch):
    monkeypatch.setattr("mmap.MADV_HUGEPAGE", -1)

    assert Arena().zeros((4,), torch.float32).sum() == 0.0
