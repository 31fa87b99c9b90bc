"""A library whose records are laid out otherwise is refused before it reads one."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from dflash.errors import KernelError
from dflash.kernels.tape import Op, Step, check_layout


def library(op_size: int, step_size: int) -> Any:
    return SimpleNamespace(dflash_op_size=lambda: op_size, dflash_step_size=lambda: step_size)


def test_a_library_of_other_records_is_refused_with_what_to_do():
    op, step = ctypes.sizeof(Op), ctypes.sizeof(Step)

    check_layout(library(op, step))
    for other in (library(op + 8, step), library(op, step - 8)):
        with pytest.raises(KernelError, match="remove their cache"):
            check_layout(other)
