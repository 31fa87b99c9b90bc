"""Step times of this machine: measured once, kept on disk, and read as the policy's table."""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dflash.cache_folder import exclusive, explained
from dflash.engine import Engine
from dflash.errors import CacheFolderError
from dflash.profile import LONG_CONTEXT, Profile, StepTime, profile
from policy.arms import PLAIN, Ladder, Rungs
from policy.cost import CostGrid, CostTable, rising_grid
from policy.errors import PolicyError

_FORM = 2
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
        clock_mhz: The device's clock meanwhile, MHz; None where it is not told.
    """

    costs: CostTable
    keeping: Mapping[str, CostGrid]
    ladder: Ladder
    clock_mhz: int | None = None

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
    engine: Engine,
    key: Mapping[str, Any],
    folder: Path,
    on_progress: Callable[[float], None],
    clock_mhz: Callable[[], int | None] = lambda: None,
) -> StepTimes:
    """Return the times kept under a key, or measure and keep them.

    Replicas that start together would measure each other's load: one measures at a time, and the
    next one finds what it has kept.

    Args:
        engine: Idle.
        key: All that step times depend on: model, drafters, machine, version, settings.
        folder: Where tables are kept.
        on_progress: Told the share of measuring that is done.
        clock_mhz: Tells the device's clock, MHz; None where nobody knows it.

    Raises:
        ProfileError: A step failed.
    """
    ladder = ladder_of(engine)
    text = json.dumps({"form": _FORM, **key}, sort_keys=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    # Without the lock first: a folder that only holds tables need not be written.
    times = _kept(path, text, ladder)
    if times is not None:
        return times
    clocks: list[int] = []

    def measured() -> Profile:
        def note(share: float) -> None:
            if (clock := clock_mhz()) is not None:
                clocks.append(clock)
            on_progress(share)

        lengths = {rungs.drafter: rungs.draft_lengths for rungs in ladder.drafters}
        return profile(engine, lengths, _MOST_ROWS, note)

    found = None
    try:
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with exclusive(folder / "lock", _say_who_measures):
                times = _kept(path, text, ladder)
                if times is not None:
                    return times
                found = measured()
                _keep(path, text, found, _usual(clocks))
    except CacheFolderError as error:
        # They are as good as any that were kept; only the next start has to measure, too.
        _logger.warning("step times are not kept: %s", error)
    return times_from(found or measured(), ladder, _usual(clocks))


def _say_who_measures(holder: str) -> None:
    _logger.info("%s measures step times; waiting for them", holder)


def _usual(clocks: list[int]) -> int | None:
    return int(median(clocks)) if clocks else None


def times_from(found: Profile, ladder: Ladder, clock_mhz: int | None = None) -> StepTimes:
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
    return StepTimes(CostTable(grids, found.prefill_s), keeping, ladder, clock_mhz)


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
        clock_mhz = content["clock_mhz"]
        _check(found, ladder)
        if clock_mhz is not None and not 0 < int(clock_mhz) == clock_mhz:
            raise ValueError(f"a clock of {clock_mhz!r} MHz")
        return times_from(found, ladder, clock_mhz)
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


def _keep(path: Path, key: str, found: Profile, clock_mhz: int | None) -> None:
    rows = [
        [t.drafter, t.draft_length, t.num_rows, t.num_context_tokens, t.seconds]
        for t in found.times
    ]
    content = json.dumps(
        {"key": key, "prefill_s": found.prefill_s, "clock_mhz": clock_mhz, "times": rows}
    )
    # Others may read it meanwhile: they see a whole one or none.
    partial = path.with_suffix(".partial")
    try:
        partial.write_text(content, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
