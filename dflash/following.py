"""How one drafter follows one sequence."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tail:
    """The open end of a draft: tokens nobody verified, all before them emitted as drafted.

    Attributes:
        token_ids: What was drafted, from the place of the next token to emit.
        place: Index in the draft of the first of them.
    """

    token_ids: tuple[int, ...]
    place: int


@dataclass(slots=True)
class Following:
    """What a sequence has come to with one drafter. Only the engine's thread touches it.

    Attributes:
        num_context: Computed tokens that the drafter has in its context, as far as is known.
        last_graded: Number of the drafter's pass that last drafted a whole block for it.
        num_ungraded: Blocks that will not be graded, because its context was just caught up.
        tails: Draft tokens not verified, which what it emits next may still confirm.
        catch_up_at: Tokens it must hold before a context that is behind is caught up.
    """

    num_context: int = 0
    last_graded: int = 0
    num_ungraded: int = 0
    tails: list[Tail] = field(default_factory=list)
    catch_up_at: int = 0
    _num_lost: int = 0

    def postpone_catch_up(self, num_tokens: int) -> None:
        """Let it go on without context until it has new tokens, twice as many each time.

        A drafter that stays broken would have everything computed again in every step, and a
        prompt longer than a step would never come to its end.

        Args:
            num_tokens: Tokens the sequence holds now.
        """
        self.catch_up_at = num_tokens + (1 << self._num_lost)
        self._num_lost += 1
