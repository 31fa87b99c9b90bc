"""Our drafter gives the numbers of the reference implementation, kept in dflash_reference.json."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dflash.drafters.base import ContextRows, DraftRow
from dflash.drafters.checkpoint import drafter_tensor_shapes, open_drafter_checkpoint
from dflash.drafters.config import dflash_config_from_json
from dflash.drafters.dflash import DFlashDrafter
from dflash.drafters.load import Lender, load_drafter
from dflash.drafters.names import LOGITS
from dflash.models.config import model_config_from_json
from dflash.program import AttentionShape, Buffer, Embed, Epilogue, Linear, Program
from tests.reference import dflash_formulas as formulas
from tests.rigs.both_forms import form_named
from tests.rigs.tiny_checkpoint import TINY_CONFIG

NUMBERS = json.loads(Path(__file__).with_name("dflash_reference.json").read_text())
SMALL = {"vocab_size": formulas.VOCAB, "num_hidden_layers": 3, "hidden_size": formulas.HIDDEN}
PAGES = (4, 1, 3)


class Recorder:
    """An executor that keeps what the one behind it returned."""

    def __init__(self, executor):
        self._executor = executor
        self.outputs = {}

    def run(self, batch):
        outputs = self._executor.run(batch)
        self.outputs = {name: rows.clone() for name, rows in outputs.items()}
        return outputs


def target_program() -> Program:
    return Program(
        operations=(
            Embed("table", "residual"),
            Linear("residual", ("head",), "logits", Epilogue.FLOAT32),
        ),
        buffers={"residual": Buffer(formulas.HIDDEN), "logits": Buffer(formulas.VOCAB)},
        attention=AttentionShape(2, 1, 32, 10000.0, 3),
        outputs=("logits",),
    )


def drafter_of(folder: Path, version: int, kind: str, form) -> DFlashDrafter:
    content = formulas.config_json(version, kind)
    (folder / "config.json").write_text(json.dumps(content))
    shapes = drafter_tensor_shapes(dflash_config_from_json(content))
    save_file(formulas.tensors(shapes), folder / "model.safetensors")
    lender = Lender(
        config=model_config_from_json(TINY_CONFIG | SMALL),
        fingerprint="",
        program=target_program(),
        weight={"table": formulas.embedding(), "head": formulas.head()}.__getitem__,
        form=form,
        dtype=torch.float32,
        num_pages=5,
        max_model_len=128,
    )
    return load_drafter(open_drafter_checkpoint(folder), lender, max_runs=2)


@pytest.mark.parametrize("form", ["torch", "compiled"])
@pytest.mark.parametrize("case", formulas.case_names())
def test_logits_agree_to_1e_5_and_drafts_are_the_same(tmp_path, case, form):
    version, kind, parts = formulas.parts_of(case)
    drafter = drafter_of(tmp_path, version, kind, form_named(form))
    recorder = Recorder(drafter.block)
    drafter = replace(drafter, block=recorder)
    features = formulas.features(sum(parts))

    start = 0
    for length in parts:
        rows = range(start, start + length)
        drafter.observe(features, [ContextRows(start, PAGES, rows)])
        start += length
        asked = DraftRow(formulas.ANCHOR, start, PAGES, formulas.BLOCK - 1, 0.0, 0, 0)
        (draft,) = drafter.propose([asked])

    expected = NUMBERS[case]
    raw = torch.tensor(expected["raw_logits"])
    torch.testing.assert_close(recorder.outputs[LOGITS], raw, atol=1e-5, rtol=0)
    assert list(draft) == expected["path"]
