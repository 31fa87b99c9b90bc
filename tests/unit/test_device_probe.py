"""Whom to ask for a device's memory, and what answers where the driver cannot."""

from types import SimpleNamespace

import pytest
import torch

from deployments import device_probe
from deployments.device_probe import driver_uuid, probe_of
from dflash.machine_memory import MachineMemory
from policy.readings import MemoryTrouble
from policy.vram import NvmlProbe

GIB = 1 << 30
UUID = "0f5fe1ad-0000-0000-0000-000000000000"


def test_on_a_processor_the_machine_answers():
    reading = probe_of(torch.device("cpu")).read()
    assert reading.trouble is None
    assert 0 < reading.free_bytes < reading.total_bytes


def test_a_container_that_is_nearly_full_says_so(monkeypatch):
    full = MachineMemory(4 * GIB, 4 * GIB - 1024, "the container's limit")
    monkeypatch.setattr(device_probe, "memory_of_this_machine", lambda: full)
    assert probe_of(torch.device("cpu")).read().free_bytes == 1024


def test_a_machine_that_counts_nothing_in_use_is_not_believed(monkeypatch):
    silent = MachineMemory(4 * GIB, 0, "physical memory")
    monkeypatch.setattr(device_probe, "memory_of_this_machine", lambda: silent)
    reading = probe_of(torch.device("cpu")).read()
    assert (reading.free_bytes, reading.trouble) == (None, MemoryTrouble.FAILED)


@pytest.mark.parametrize(
    ("framework", "visible", "index", "expected"),
    [
        (UUID, "", 0, f"GPU-{UUID}"),
        (UUID, "3,1", 1, f"GPU-{UUID}"),
        (UUID, "GPU-0f5f", 0, f"GPU-{UUID}"),
        (f"GPU-{UUID}", "0", 0, f"GPU-{UUID}"),
        (UUID, "0, MIG-77aa", 1, "MIG-77aa"),
        (UUID, "0, MIG-77aa", 0, f"GPU-{UUID}"),
        (f"MIG-{UUID}", "", 0, f"MIG-{UUID}"),
    ],
)
def test_a_device_has_one_name_whatever_form_it_is_made_visible_in(
    framework, visible, index, expected
):
    assert driver_uuid(framework, visible, index) == expected


@pytest.fixture
def one_slice(monkeypatch):
    """One visible slice of 16 GiB, as the framework tells it."""
    facts = SimpleNamespace(uuid=UUID, total_memory=16 * GIB)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-77aa")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: facts)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (4 * GIB, 16 * GIB))


def refused(name: str):
    raise ImportError(name)


def test_a_slice_without_a_driver_is_answered_by_the_framework(one_slice, monkeypatch):
    monkeypatch.setattr("policy.vram.importlib.import_module", refused)
    probe = probe_of(torch.device("cuda"))
    assert isinstance(probe, NvmlProbe)
    reading = probe.read()
    assert (reading.total_bytes, reading.free_bytes) == (16 * GIB, 4 * GIB)
    assert reading.trouble is MemoryTrouble.ABSENT


def test_where_the_framework_cannot_say_either_the_machine_answers(one_slice, monkeypatch):
    def unsupported(index: int):
        raise RuntimeError("CUDA error: operation not supported")

    monkeypatch.setattr("policy.vram.importlib.import_module", refused)
    monkeypatch.setattr(torch.cuda, "mem_get_info", unsupported)
    shared = MachineMemory(128 * GIB, 96 * GIB, "physical memory")
    monkeypatch.setattr(device_probe, "memory_of_this_machine", lambda: shared)
    assert probe_of(torch.device("cuda:0")).read().free_fraction == 0.25
