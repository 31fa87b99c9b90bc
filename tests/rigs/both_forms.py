"""A form of the kernels by its name, for tests that run in both."""

import pytest

from dflash.forms import CompiledForm, Form, TorchForm
from dflash.kernels.build import native_build
from dflash.kernels.torch_forms import FixedRows, OneQuery


def form_named(name: str) -> Form:
    if name == "torch":
        return TorchForm(FixedRows(8), OneQuery())
    build = native_build()
    if build.library is None:
        pytest.skip(f"no compiled kernels: {build.why_unavailable}")
    return CompiledForm(build.library, num_threads=1)
