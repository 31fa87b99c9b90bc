"""Is each fault that public reports trace wrong answers back to seen by the other benchmarks?"""

import logging
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from benchmarks.prompts import chat_token_ids, questions
from benchmarks.report import Options, Result, Table, progress, run_benchmark
from benchmarks.rigs.arms import alone
from benchmarks.rigs.draft_arms import full_width_of_first, scripted
from benchmarks.rigs.fault import Dice, Fault
from benchmarks.rigs.faulty_target import FaultyTarget
from benchmarks.rigs.faulty_verdicts import OF_VERDICTS, spoil_verdicts
from benchmarks.rigs.planners import reach_of
from benchmarks.rigs.script_drafter import random_wrong
from benchmarks.rigs.served import LIMITS, Manner, StepFailedError, served
from benchmarks.rigs.slot_memory import HashMemory, KeyValueMemory
from benchmarks.rigs.storm_run import Storm
from benchmarks.rigs.transcript import compared
from dflash.config import EngineConfig, KVCacheConfig
from dflash.errors import EngineError
from dflash.forms import Parts
from dflash.kernels.pages import allocate_pages, rotary_table
from dflash.load import LoadedTarget, load_target
from dflash.request import GenerateRequest, SamplingParams
from dflash.runner import Runner

_CHANCES = (1.0, 0.05)
_NUM_PAGES = 256
_BATCH = 4
_WRONG = 0.3
_SEED = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """What one check saw of a fault.

    Attributes:
        num_struck: Turns that were made wrong.
        differences: How often each figure of the check differs from its right value; "raised"
            where an engine part refused to go on.
    """

    num_struck: int
    differences: dict[str, int]

    @property
    def is_caught(self) -> bool:
        """Whether the check would have failed."""
        return any(self.differences.values())


class ExactnessCheck:
    """Requests on the embedded model against each alone, as in ``benchmarks.exactness``."""

    name = "exactness"

    def __init__(self, target: LoadedTarget, num_requests: int, max_tokens: int) -> None:
        lender = target.lender
        shape = lender.program.attention
        pages = allocate_pages(shape, _NUM_PAGES, lender.dtype)
        rotary = rotary_table(shape, lender.max_model_len)
        executor = lender.form.executor(Parts(lender.program, lender.weight, pages, rotary))
        facts = replace(target.runner.facts, num_pages=_NUM_PAGES)
        self._runner = Runner(facts, executor)
        self._memory = KeyValueMemory(pages)
        self._requests = _requests(target, num_requests, max_tokens)
        self._reference = alone(self._runner, self._requests).transcript
        self._greedy = frozenset(
            r.request_id for r in self._requests if r.sampling.temperature == 0.0
        )

    def look_at(self, fault: Fault, chance: float) -> Seen:
        """Serve with the fault switched on."""
        dice = Dice(chance, _SEED)
        target = self._runner
        if fault not in OF_VERDICTS:
            target = FaultyTarget(self._runner, self._memory, fault, dice)
        script = random_wrong(_WRONG, target.facts.vocab_size, _SEED)
        drafter = scripted(target, self._requests, self._reference, script)
        manner = Manner(
            replace(LIMITS, max_num_seqs=_BATCH),
            shuffle_seed=_SEED,
            drafters=[drafter],
            planner=full_width_of_first(reach_of([drafter])),
            prepare=lambda engine: spoil_verdicts(engine, fault, dice),
        )
        try:
            outcome = served(target, self._requests, manner)
        except (StepFailedError, EngineError):
            return Seen(dice.num_struck, {"raised": 1})
        found = asdict(compared(self._reference, outcome.transcript, self._greedy))
        del found["positions_compared"]
        return Seen(dice.num_struck, found)


class StormCheck:
    """Random requests on the integer-exact model, as in ``benchmarks.storm``."""

    name = "storm"

    def __init__(self, num_requests: int) -> None:
        self._num_requests = num_requests

    def look_at(self, fault: Fault, chance: float) -> Seen:
        """Run a storm with the fault switched on."""
        dice = Dice(chance, _SEED)
        storm = Storm(
            _SEED,
            lambda model: (
                model
                if fault in OF_VERDICTS
                else FaultyTarget(model, HashMemory(model), fault, dice)
            ),
        )
        spoil_verdicts(storm.engine, fault, dice)
        try:
            storm.run(self._num_requests)
        except EngineError:
            return Seen(dice.num_struck, {"raised": 1})
        return Seen(
            dice.num_struck,
            {
                "ids_differ": storm.ids_differ,
                "pages_written_astray": storm.pages_written_astray,
                "contexts_wrong": storm.contexts_wrong,
            },
        )


def measure(options: Options) -> Result:
    """Switch every fault on, always and at times, and see which check finds it."""
    # Faults make engines log errors by the hundred.
    logging.getLogger("dflash").setLevel(logging.CRITICAL)
    target = load_target(
        EngineConfig(num_threads=options.arguments.threads, kv_cache=KVCacheConfig(memory_gib=0.2))
    )
    checks = (
        ExactnessCheck(target, *((16, 20) if options.quick else (32, 40))),
        StormCheck(60 if options.quick else 300),
    )
    cases = [(fault, chance) for fault in Fault for chance in _CHANCES]
    with progress(len(checks) * (len(cases) + 1), "faults") as bar:
        sound, seen = [], {}
        for check in checks:
            sound.append(check.look_at(Fault.KV_SWAPPED, 0.0))
            bar.update()
            for case in cases:
                seen[case, check.name] = check.look_at(*case)
                bar.update()
    found = {case: [seen[case, check.name] for check in checks] for case in cases}
    return Result(
        figures={
            "injected": sum(any(s.num_struck for s in each) for each in found.values()),
            "caught": sum(any(s.is_caught for s in each) for each in found.values()),
            "false_alarms": sum(each.is_caught for each in sound),
        },
        must_hold={"injected": len(cases), "caught": len(cases), "false_alarms": 0},
        detail={
            f"{fault}, {chance:g}, {check}": asdict(each)
            for ((fault, chance), check), each in seen.items()
        },
        tables=(_table(found, [check.name for check in checks]),),
    )


def _requests(target: LoadedTarget, count: int, max_tokens: int) -> list[GenerateRequest]:
    draw = random.Random(_SEED)
    prompts = chat_token_ids(target.model_folder, questions(count, visit=1))
    return [
        GenerateRequest(
            request_id=f"request-{index}",
            prompt_token_ids=tuple(prompt),
            max_tokens=draw.randint(max_tokens // 2, max_tokens),
            sampling=SamplingParams(temperature=draw.choice((0.0, 0.0, 1.0))),
            seed=index,
        )
        for index, prompt in enumerate(prompts)
    ]


def _table(found: dict[tuple[Fault, float], list[Seen]], checks: Sequence[str]) -> Table:
    return Table(
        "Each fault, by the chance that it strikes a turn: turns struck, and what differs then",
        ("fault", "chance", *(f"{what}, {name}" for name in checks for what in ("struck", "seen"))),
        tuple(
            (
                fault,
                f"{chance:g}",
                *(cell for s in each for cell in (str(s.num_struck), _seen_text(s))),
            )
            for (fault, chance), each in found.items()
        ),
    )


def _seen_text(seen: Seen) -> str:
    return ", ".join(f"{n} {name}" for name, n in seen.differences.items() if n) or "nothing"


if __name__ == "__main__":
    run_benchmark(
        "faults",
        "Seven faults switched on one by one: each must be caught by exactness or storm.",
        measure,
        lambda parser: parser.add_argument(
            "--threads", type=int, default=None, help="all CPUs by default"
        ),
    )
