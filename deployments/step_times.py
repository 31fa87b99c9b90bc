"""Step times of this machine: measured once, kept on disk, and read as the policy's table."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash.cache_folder import explained
from dflash.engine import Engine
from dflash.profile import LONG_CONTEXT, Profile, StepTime, profile
from policy.arms import PLAIN, Ladder, Rungs
from policy.cost import CostGrid, CostTable, rising_grid

_FORM = 1
_MOST_ROWS = 64
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What the policy knows of steps before it has seen one.

    Attributes:
        costs: Times of whole steps, by arm.
        keeping: Time that each drafter's context adds to a step that does not draft, by rows and
            context; widths are of no account.
        ladder: The drafters, and the draft lengths that were measured.
    """

    costs: CostTable
    keeping: Mapping[str, CostGrid]
    ladder: Ladder

    def sync_s(self, drafter: str, num_rows: int, num_context_tokens: float) -> float:
        """Return the time per step that keeps an idle drafter's context up to date, seconds."""
        kept = self.keeping[drafter].at(num_rows, 0, num_context_tokens)
        return max(0.0, kept - self.costs.grids[PLAIN].at(num_rows, 0, num_context_tokens))


def ladder_of(engine: Engine) -> Ladder:
    """Return the drafters of an engine with the draft lengths worth choosing from."""
    return Ladder(
        tuple(
            Rungs(name, draft_lengths(rung.facts.max_draft_length), rung.facts.max_context)
            for name, rung in engine.scheduler.grants.rungs.items()
        )
    )


def draft_lengths(most: int) -> tuple[int, ...]:
    """Return the draft lengths to choose from: all of a short chain, every other of a block."""
    if most <= 3:
        return tuple(range(1, most + 1))
    return tuple(sorted({*range(1, most + 1, 2), most}))


def step_times_of(
    engine: Engine, key: Mapping[str, Any], folder: Path, on_progress: Callable[[float], None]
) -> StepTimes:
    """Return the times kept under a key, or measure and keep them.

    Args:
        engine: Idle.
        key: All that step times depend on: model, drafters, machine, version, settings.
        folder: Where tables are kept.
        on_progress: Told the share of measuring that is done.

    Raises:
        CacheFolderError: The folder cannot be written.
        ProfileError: A step failed.
    """
    ladder = ladder_of(engine)
    lengths = {rungs.drafter: rungs.draft_lengths for rungs in ladder.drafters}
    text = json.dumps({"form": _FORM, **key}, sort_keys=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    found = _kept(path, text)
    if found is None:
        found = profile(engine, lengths, _MOST_ROWS, on_progress)
        with explained(folder):
            _keep(path, text, found)
    return times_from(found, ladder)


def times_from(found: Profile, ladder: Ladder) -> StepTimes:
    """Return the policy's table of measured times.

    The long context was measured with one number of rows: what its tokens add is attention, and
    linear in rows and tokens. Live steps correct the rest.
    """
    contexts = [time.num_context_tokens for time in found.times]
    short, slopes = min(contexts), _slopes(found.times)
    grids, keeping = {}, {}
    for name in (PLAIN, *ladder.names):
        times = [time for time in found.times if time.drafter == name]
        drafting = [time for time in times if (time.draft_length > 0) == (name != PLAIN)]
        grids[name] = _grid(drafting, short, slopes)
        if name != PLAIN:
            kept = [time for time in times if time.draft_length == 0]
            keeping[name] = _grid(kept, short, slopes)
    return StepTimes(CostTable(grids, found.prefill_s), keeping, ladder)


def _grid(times: list[StepTime], short: int, slopes: Mapping[tuple[str, int], float]) -> CostGrid:
    medians: dict[tuple[int, int, int], float] = {}
    for time in times:
        if time.num_context_tokens != short:
            continue
        rows, width = time.num_rows, time.draft_length
        added = slopes.get((time.drafter, width), 0.0) * rows * (LONG_CONTEXT - short)
        medians[rows, width, short] = time.seconds
        medians[rows, width, LONG_CONTEXT] = time.seconds + added
    rows, widths, contexts = (sorted({key[axis] for key in medians}) for axis in range(3))
    return rising_grid(rows, widths, contexts, medians)


def _slopes(times: tuple[StepTime, ...]) -> dict[tuple[str, int], float]:
    """Return what a token more of one request adds to a step, seconds, by drafter and length."""
    short = {
        (time.drafter, time.draft_length, time.num_rows): time
        for time in times
        if time.num_context_tokens != LONG_CONTEXT
    }
    slopes = {}
    for time in times:
        if time.num_context_tokens == LONG_CONTEXT:
            before = short[time.drafter, time.draft_length, time.num_rows]
            tokens = time.num_rows * (LONG_CONTEXT - before.num_context_tokens)
            added_s = max(0.0, time.seconds - before.seconds)
            slopes[time.drafter, time.draft_length] = added_s / tokens
    return slopes


def _kept(path: Path, key: str) -> Profile | None:
    """Return the times of a file; None where there is none, or it is not what it should be."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["key"] != key:
            return None
        times = tuple(StepTime(*row) for row in content["times"])
        found = Profile(times, float(content["prefill_s"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        _logger.warning(
            "step times in %s cannot be read (%s); they are measured again", path, error
        )
        return None
    return found if all(time.seconds > 0.0 for time in found.times) else None


def _keep(path: Path, key: str, found: Profile) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        [t.drafter, t.draft_length, t.num_rows, t.num_context_tokens, t.seconds]
        for t in found.times
    ]
    content = json.dumps({"key": key, "prefill_s": found.prefill_s, "times": rows})
    # Another replica may read it meanwhile: it sees the whole file or none.
    partial = path.with_suffix(".partial")
    partial.write_text(content, encoding="utf-8")
    partial.replace(path)
