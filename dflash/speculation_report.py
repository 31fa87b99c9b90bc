"""Whether a loaded engine speculates, with which drafter, and what that rests on."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DrafterReport:
    """A drafter in memory.

    Attributes:
        name: Its hub id, or the name of its folder.
        kind: What plans and statistics call it, such as ``dflash2``.
        max_draft_length: Most draft tokens of one pass.
    """

    name: str
    kind: str
    max_draft_length: int


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """What was found out about drafting while an engine was loaded.

    Attributes:
        drafter: Name of the drafter that drafts as the engine starts; None where there is none.
        draft_length: Draft tokens verified for each request and step, as the engine starts; 0
            decodes plainly, ``auto`` leaves it to the policy.
        detail: One sentence: which drafter drafts and with what block, or why none does.
        drafters: All that are in memory; a plan may switch between them at any step.
    """

    drafter: str | None
    draft_length: int | Literal["auto"]
    detail: str
    drafters: tuple[DrafterReport, ...] = ()
