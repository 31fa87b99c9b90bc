"""The start-up probe lets no form through whose rows know of each other."""

from dataclasses import dataclass, replace

import pytest
import torch

from dflash.batch import Batch
from dflash.probe import PROBE_PAGES, first_difference
from dflash.target import TargetOutput
from tests.rigs.tiny_executor import NUM_PAGES, native_executor, tiny_config, torch_executor


@dataclass
class Drifting:
    """The exact reference, with the last bit moved where ``when`` says so."""

    when: str
    form: str = "drifting"

    def __post_init__(self) -> None:
        self.inner = torch_executor(tiny_config())

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        output = self.inner.forward(batch, taps)
        moved = {
            "rows are many": batch.num_tokens > 1,
            "a run is long": int(batch.run_offsets.diff().max()) >= 21,
            "runs are many": batch.num_runs > 1,
            "a row is not first": True,
        }[self.when]
        if not moved:
            return output
        logits = output.logits.clone()
        first = 1 if self.when == "a row is not first" else 0
        logits[first:] = torch.nextafter(logits[first:], torch.tensor(torch.inf))
        return replace(output, logits=logits)


def test_an_exact_form_passes():
    assert first_difference(torch_executor(tiny_config()), 80) is None


@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_compiled_form_passes(num_threads):
    executor = native_executor(tiny_config(), torch.bfloat16, num_threads=num_threads)

    assert first_difference(executor, 80) is None


@pytest.mark.parametrize(
    ("when", "where"),
    [
        ("rows are many", "prefilled in one run"),
        ("a run is long", "prefilled in one run"),
        ("runs are many", "beside other requests"),
        ("a row is not first", "prefilled in one run"),
    ],
)
def test_one_moved_bit_is_found_and_named(when, where):
    difference = first_difference(Drifting(when), 80)

    assert difference is not None
    assert where in difference


def test_the_probe_stays_within_its_pages():
    executor = torch_executor(tiny_config())
    first_difference(executor, 80)

    assert not executor._pages.keys[:, PROBE_PAGES:].any()
    assert NUM_PAGES > PROBE_PAGES
