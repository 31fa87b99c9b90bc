"""What a loaded target promises about its numbers, and what that rests on."""

from dataclasses import dataclass

from dflash.config import Exactness


@dataclass(frozen=True, slots=True)
class ExactnessReport:
    """The outcome of the start-up probe.

    Attributes:
        mode: What is promised.
        form: The kernels' form that was chosen, in a word or two.
        detail: One sentence: what was probed, and which operation decided.
    """

    mode: Exactness
    form: str
    detail: str
