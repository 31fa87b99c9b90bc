"""Numbers a run cannot work with are refused by name; odd ones that can work do."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dflash.drafters.checkpoint import open_drafter_checkpoint
from dflash.train.__main__ import main
from dflash.train.trainer import Trainer
from tests.rigs.fit_run import arguments, write_target
from tests.rigs.tiny_drafter import tiny_drafter, tiny_sequence, tiny_target
from tests.unit.test_train_loop import PLAN

WRONG = {
    "--steps": ("-1", "0"),
    "--block-size": ("0", "1", "17", "40"),
    "--layers": ("0",),
    "--selector-rank": ("0", "-1"),
    "--window": ("0", "-5", "7"),
    "--anchors": ("0",),
    "--sequences-per-step": ("0",),
    "--held-out-sequences": ("0", "-1"),
    "--learning-rate": ("-1", "0", "nan", "inf"),
    "--draft-vocab-size": ("0", "5"),
    "--seed": (str(2**70), "-1"),
    "--decay": ("0", "-1", "nan"),
    "--second-version-at": ("-1", "2", "nan"),
    "--save-s": ("nan", "-1"),
    "--measure-s": ("nan",),
}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("numbers")
    return arguments(folder, write_target(folder / "target"), steps=1)


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, values in WRONG.items() for value in values]
)
def test_a_number_that_cannot_work_is_refused(
    command: list[str], caplog: pytest.LogCaptureFixture, option: str, value: str
) -> None:
    assert main([*command, f"{option}={value}"]) == 1
    assert f"{option} must be " in caplog.text
    assert f", got {value}" in caplog.text or float(value) == pytest.approx(
        float(caplog.text.split(", got ")[1]), nan_ok=True
    )
    assert not Path(command[command.index("--run") + 1]).exists()


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_a_time_that_cannot_work_is_refused(
    command: list[str], caplog: pytest.LogCaptureFixture, minutes: str
) -> None:
    place = command.index("--steps")
    timed = [*command[:place], *command[place + 2 :], f"--minutes={minutes}"]
    assert main(timed) == 1
    assert "--minutes must be above 0" in caplog.text


@pytest.mark.parametrize("length", ["0", "16"])
def test_a_chain_that_serving_cannot_draft_is_refused(
    command: list[str], caplog: pytest.LogCaptureFixture, length: str
) -> None:
    assert main([*command, "--drafter", "mtp", "--draft-length", length]) == 1
    assert f"--draft-length must be in [1, 15], got {length}" in caplog.text


def test_a_share_of_one_trains_a_first_version(tmp_path: Path) -> None:
    fit = arguments(tmp_path, write_target(tmp_path / "target"), steps=2)
    assert main([*fit, "--second-version-at", "1"]) == 0
    assert open_drafter_checkpoint(tmp_path / "drafter").config.version == 1


@pytest.mark.parametrize("second_version_at", [0.0, 1.0])
@pytest.mark.parametrize("decay", [None, 4.0])
def test_a_step_without_a_known_label_costs_nothing_and_the_run_goes_on(
    second_version_at: float, decay: float | None
) -> None:
    # The sequences hold ids 1 to 5, the shortlist others.
    target = tiny_target(torch.arange(10, 20))
    plan = replace(PLAN, second_version_at=second_version_at, decay=decay)
    trainer = Trainer(tiny_drafter(), target, plan)
    reports = [trainer.train_step([tiny_sequence(0)]) for _ in range(2)]
    assert [(report.base_loss, report.selector_loss) for report in reports] == [(0.0, 0.0)] * 2
    assert all(parameter.isfinite().all() for parameter in trainer.drafter.parameters())


def test_tokens_are_those_of_sequences_and_blocks_and_not_what_fills_up() -> None:
    trainer = Trainer(tiny_drafter(), tiny_target(), PLAN)
    trainer.train_step([tiny_sequence(0, length=40)])
    # 39 of the context, and 8 blocks of 4.
    assert trainer.tokens == 39 + 8 * 4
