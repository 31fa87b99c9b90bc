"""The two runs: a grid of arms over loads, round by round, and acceptance on each task."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.prompts import Chat
from benchmarks.speculation.arms import Arm, in_turn
from benchmarks.speculation.serving import Server
from benchmarks.speculation.tasks import Turns
from benchmarks.speculation.visits import Acceptance, Load, Visit


@dataclass(frozen=True, slots=True)
class GridLoad:
    """A load of the grid, and how many rounds it is served in."""

    load: Load
    num_rounds: int


def grid_visits(
    server: Server,
    prompts: Iterator[Sequence[int]],
    loads: Sequence[GridLoad],
    arms: tuple[Arm, ...],
    on_visit: Callable[[], object],
) -> list[Visit]:
    """Serve every load in every arm, each round with prompts of its own.

    Args:
        server: The engine.
        prompts: Where each round takes the next ones from.
        loads: What is served.
        arms: Who serves it, all the same prompts one right after another.
        on_visit: Called after each visit.
    """
    visits = []
    for grid_load in loads:
        for round_index in range(grid_load.num_rounds):
            asked = [next(prompts) for _ in range(grid_load.load.num_requests)]
            for arm in in_turn(arms, round_index):
                visits.append(server.visit(asked, grid_load.load, arm, round_index))
                on_visit()
    return visits


def acceptance_on(
    server: Server, chat: Chat, conversations: Sequence[Turns], load: Load, arm: Arm
) -> Acceptance:
    """Answer every turn of every conversation and return what became of the drafts."""
    spoken: list[list[str]] = [[] for _ in conversations]
    acceptance = Acceptance()
    for turn in range(max(map(len, conversations))):
        asked = [index for index, turns in enumerate(conversations) if turn < len(turns)]
        for index in asked:
            spoken[index].append(conversations[index][turn])
        visit = server.visit([chat.token_ids(spoken[index]) for index in asked], load, arm, turn)
        acceptance += visit.acceptance
        for index, token_ids in zip(asked, visit.token_ids, strict=True):
            spoken[index].append(chat.text(token_ids))
    return acceptance
