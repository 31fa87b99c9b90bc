"""Step times of this machine: measured once, kept on disk, and read as the policy's table."""

import hashlib
import json
import logging
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash.cache_folder import explained
from dflash.engine import Engine
from dflash.errors import CacheFolderError
from dflash.profile import LONG_CONTEXT, Profile, StepTime, profile
from policy.arms import PLAIN, Ladder, Rungs
from policy.cost import CostGrid, CostTable, rising_grid
from policy.errors import PolicyError

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
        ProfileError: A step failed.
    """
    ladder = ladder_of(engine)
    lengths = {rungs.drafter: rungs.draft_lengths for rungs in ladder.drafters}
    text = json.dumps({"form": _FORM, **key}, sort_keys=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    kept = _kept(path, text, ladder)
    if kept is not None:
        return kept
    found = profile(engine, lengths, _MOST_ROWS, on_progress)
    try:
        with explained(folder):
            _keep(path, text, found)
    except CacheFolderError as error:
        # They are as good as any that were kept; only the next start has to measure, too.
        _logger.warning("step times are not kept: %s", error)
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


def _kept(path: Path, key: str, ladder: Ladder) -> StepTimes | None:
    """Return the times of a file; None where there is none, or it is not what it should be."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["key"] != key:
            return None
        found = Profile(tuple(StepTime(*row) for row in content["times"]), content["prefill_s"])
        _check(found, ladder)
        return times_from(found, ladder)
    except FileNotFoundError:
        return None
    # Whatever is in a file that something else wrote, measuring again replaces it.
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        problem = repr(error)
    except PolicyError as error:
        problem = str(error)
    _logger.warning("step times in %s cannot be read (%s); they are measured again", path, problem)
    return None


def _check(found: Profile, ladder: Ladder) -> None:
    """Refuse what no measurement has brought: a wrong table costs more than drafting gains.

    Raises:
        ValueError: A time is none, or one is missing or there twice.
    """
    if not all(0.0 < time.seconds < math.inf for time in found.times):
        raise ValueError("a step has no time")
    if not 0.0 <= found.prefill_s < math.inf:
        raise ValueError(f"a prompt's token takes {found.prefill_s} s")
    lengths = [(rungs.drafter, (0, *rungs.draft_lengths)) for rungs in ladder.drafters]
    arms = {(PLAIN, 0), *((name, length) for name, each in lengths for length in each)}
    measured = [(t.num_rows, t.num_context_tokens, t.drafter, t.draft_length) for t in found.times]
    loads = {(rows, context) for rows, context, *_ in measured}
    if sorted(measured) != sorted((*load, *arm) for load in loads for arm in arms):
        raise ValueError("a drafter, draft length or load is missing, or there twice")


def _keep(path: Path, key: str, found: Profile) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        [t.drafter, t.draft_length, t.num_rows, t.num_context_tokens, t.seconds]
        for t in found.times
    ]
    content = json.dumps({"key": key, "prefill_s": found.prefill_s, "times": rows})
    # Others may read it meanwhile, or write it: each writes a file of its own, and whoever reads
    # sees a whole one or none.
    partial = path.with_suffix(f".{secrets.token_hex(8)}.partial")
    try:
        partial.write_text(content, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
