"""What goes wrong in a simulation: a drafter that breaks and heals, memory that goes and comes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.simulate.baselines import Law
from benchmarks.simulate.score import mean_worth, recovery_s, waited_s
from benchmarks.simulate.traces import Trace
from policy.simulate import Simulation
from policy.terms import Terms
from policy.ticks import Tick
from policy.truth import Truth

NUM_TROUBLES = 2


@dataclass(frozen=True, slots=True)
class Troubles:
    """What the law does in trouble, and after."""

    trace: Trace
    truth: Truth
    terms: Terms
    horizon_s: float
    done: Callable[[], object]

    def figures(self, victim: str) -> dict[str, float]:
        """Return the figures of a drafter that breaks and heals, and of memory gone and back."""
        start_s, end_s = self.horizon_s * 0.3, self.horizon_s * 0.5
        collapsed, broken = self._lived(replace(self.truth, broken={victim: (start_s, end_s)}))
        pressed, red = self._lived(replace(self.truth, red=(start_s, end_s)))
        figures = {
            "recovery_s": waited_s(collapsed, end_s, victim),
            "recovery_from_red_s": recovery_s(pressed, end_s),
            "worth_while_broken": mean_worth(broken) if broken else None,
        }
        known = {name: value for name, value in figures.items() if value is not None}
        return {**known, "drafted_in_red": sum(not tick.arm.is_plain for tick in red)}

    def _lived(self, world: Truth) -> tuple[list[Tick], list[Tick]]:
        """Return the ticks of all and those of the trouble."""
        start_s, end_s = self.horizon_s * 0.3, self.horizon_s * 0.5
        simulation = Simulation(self.trace.arrivals, world, Law(self.terms))
        simulation.run(1.5 * self.horizon_s)
        self.done()
        ticks = simulation.ticks
        return ticks, [tick for tick in ticks if start_s < tick.at_s < end_s]
