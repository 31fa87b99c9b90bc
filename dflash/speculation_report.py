"""Whether a loaded engine speculates, with which drafter, and what that rests on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """What was found out about drafting while an engine was loaded.

    Attributes:
        drafter: Name of the drafter in memory; None where there is none.
        draft_length: Draft tokens verified for each request and step, as the engine starts; 0
            decodes plainly.
        detail: One sentence: which drafter drafts and with what block, or why none does.
    """

    drafter: str | None
    draft_length: int
    detail: str
