"""One H200 serving Qwen3.8-27B, as its published throughputs imply it."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from policy.arms import PLAIN, Ladder, Rungs
from policy.cost import CostTable, rising_grid
from policy.errors import PolicyError

TARGET = "Qwen3.8-27B"
TASKS = ("GSM8K", "MATH-500", "HumanEval", "MBPP", "MT-Bench")
# The published runs verified blocks of eight: an anchor and seven draft tokens.
WIDTH = 7
# Names in the published table, and ours.
_DRAFTERS = {
    "AR": PLAIN,
    "MTP": "mtp",
    "DFlash2": "dflash2",
    "DSpark (RadixArk/community)": "dspark",
}
ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
LADDER = Ladder((Rungs("dflash2", (1, 3, 5, 7)), Rungs("mtp", (1, 2, 3, 5, 7))))
# Published runs do not say what a prompt's token costs: 2 * 27e9 operations at 60% of 989e12 a
# second.
_PREFILL_S = 9.1e-5


@dataclass(frozen=True, slots=True)
class Cell:
    """One published throughput.

    Attributes:
        task: Of `TASKS`.
        drafter: Ours, or ``plain``.
        concurrency: Requests at once.
        throughput_tok_s: Tokens a second over all of them.
        acceptance_length: Tokens per verify run, extra one included; 1 for plain.
    """

    task: str
    drafter: str
    concurrency: int
    throughput_tok_s: float
    acceptance_length: float

    @property
    def step_s(self) -> float:
        """Time that one step must have taken, seconds."""
        return self.concurrency * self.acceptance_length / self.throughput_tok_s


def read_cells(path: Path) -> tuple[Cell, ...]:
    """Return the published cells of the target on one H200.

    Raises:
        PolicyError: The file is not the table of published results.
    """
    lengths: dict[tuple[str, str], float] = {}
    found: list[tuple[str, str, int, float]] = []
    try:
        with path.open(encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if _is_ours(row)]
    except (OSError, KeyError) as error:
        raise PolicyError(f"--vendor-tables {path} cannot be read ({error})") from error
    for row in rows:
        drafter, value = _DRAFTERS[row["drafter"]], float(row["value"])
        if row["metric"] == "acceptance_length":
            lengths[row["task"], drafter] = value
        elif row["metric"] == "throughput_tok_s":
            found.append((row["task"], drafter, int(row["concurrency"]), value))
    if not found:
        raise PolicyError(
            f"--vendor-tables {path} has no throughput of {TARGET}; give the full one"
        )
    return tuple(
        Cell(task, drafter, concurrency, value, lengths.get((task, drafter), 1.0))
        for task, drafter, concurrency, value in found
    )


def _is_ours(row: dict[str, str]) -> bool:
    return (
        row["target"] == TARGET
        and row["source"].startswith("card:")
        and row["drafter"] in _DRAFTERS
        and row["task"] in TASKS
    )


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of a step in milliseconds, a few terms with a meaning each.

    Attributes:
        base: Reading the weights once.
        row: One more request.
        token: One more token verified, as long as weights bound the step.
        beyond: One more token past the knee, where arithmetic does.
        knee: Tokens in a step at which that happens.
        dflash2: Drafting a block.
        dspark: Drafting a block.
        block_row: Drafting a block for one more request.
        mtp_pass: One pass of the MTP head.
        mtp_row: The same for one more request.
    """

    base: float
    row: float
    token: float
    beyond: float
    knee: int
    dflash2: float
    dspark: float
    block_row: float
    mtp_pass: float
    mtp_row: float

    def step_s(self, drafter: str, rows: float, width: float) -> float:
        """Return the seconds of a step.

        The parallel drafters fill their whole block whatever is verified of it; the MTP head makes
        one token a pass.
        """
        terms = _terms(drafter, rows, width, self.knee)
        weights = (
            self.base,
            self.row,
            self.token,
            self.beyond,
            self.dflash2,
            self.dspark,
            self.block_row,
            self.mtp_pass,
            self.mtp_row,
        )
        return float(np.dot(terms, weights)) / 1e3

    def table(self) -> CostTable:
        """Return the cost table of the ladder."""
        grids = {}
        axes = {PLAIN: (0,), **{rungs.drafter: rungs.draft_lengths for rungs in LADDER.drafters}}
        for name, widths in axes.items():
            medians = {(b, w, 0): self.step_s(name, b, w) for b in ROWS for w in widths}
            grids[name] = rising_grid(ROWS, widths, (0,), medians)
        return CostTable(grids, _PREFILL_S)


# What `fitted` gives for the published table, so that a simulation needs no file.
PUBLISHED = StepTimes(
    base=14.519,
    row=0.22533,
    token=0.0891,
    beyond=0.18369,
    knee=56,
    dflash2=6.5968,
    dspark=6.7128,
    block_row=0.0050261,
    mtp_pass=1.54007,
    mtp_row=0.0539175,
)
# The chance at which seven draft tokens, alike at every place, give the published acceptance
# lengths.
CHANCES = {
    "GSM8K": {"dflash2": 0.887, "mtp": 0.861},
    "MATH-500": {"dflash2": 0.877, "mtp": 0.841},
    "HumanEval": {"dflash2": 0.818, "mtp": 0.779},
    "MBPP": {"dflash2": 0.846, "mtp": 0.786},
    "MT-Bench": {"dflash2": 0.795, "mtp": 0.763},
}


def _terms(drafter: str, rows: float, width: float, knee: int) -> list[float]:
    is_block = drafter in ("dflash2", "dspark")
    is_mtp = drafter == "mtp"
    return [
        1.0,
        rows,
        rows * width,
        max(0.0, rows * (width + 1) - knee),
        float(drafter == "dflash2"),
        float(drafter == "dspark"),
        rows if is_block else 0.0,
        width if is_mtp else 0.0,
        rows * width if is_mtp else 0.0,
    ]


def chance_for(acceptance_length: float, width: int = WIDTH) -> float:
    """Return the chance of a draft token that gives an acceptance length at a draft length."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**place for place in range(width + 1)) < acceptance_length:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit to published cells.

    Attributes:
        times: What was fitted.
        cells: What it was fitted to.
    """

    times: StepTimes
    cells: tuple[Cell, ...]

    def predicted_tok_s(self, cell: Cell) -> float:
        """Return the throughput that the fit gives a cell."""
        width = 0 if cell.drafter == PLAIN else WIDTH
        step_s = self.times.step_s(cell.drafter, cell.concurrency, width)
        return cell.concurrency * cell.acceptance_length / step_s


def fitted(cells: Sequence[Cell]) -> Fit:
    """Return step times fitted to published throughputs by non-negative least squares.

    Relative errors count alike, and no term is below 0: a step that gets cheaper with work would
    make the simulated policy look good for nothing.
    """
    wanted = np.array([cell.step_s * 1e3 for cell in cells])
    best: tuple[float, StepTimes] | None = None
    for knee in range(32, 225, 8):
        rows = np.array(
            [
                _terms(c.drafter, c.concurrency, 0 if c.drafter == PLAIN else WIDTH, knee)
                for c in cells
            ]
        )
        weights = _non_negative(rows / wanted[:, None], np.ones(len(cells)))
        error = float(np.sum((rows @ weights / wanted - 1.0) ** 2))
        base, row, token, beyond, *drafting = weights.tolist()
        if best is None or error < best[0]:
            best = error, StepTimes(base, row, token, beyond, knee, *drafting)
    if best is None:
        raise PolicyError("no cell to fit to; give the table of published results")
    return Fit(best[1], tuple(cells))


def _non_negative(rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the least-squares weights with every weight that would be below 0 left out."""
    kept = list(range(rows.shape[1]))
    while True:
        solved, *_ = np.linalg.lstsq(rows[:, kept], wanted, rcond=None)
        worst = int(np.argmin(solved))
        if solved[worst] >= 0.0:
            weights = np.zeros(rows.shape[1])
            weights[kept] = solved
            return weights
        del kept[worst]
