"""A scripted engine with the surface of the real one: what it says is known beforehand."""

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from deployments.replica import OnOutputs, OnProgress, RunningEngine
from dflash.config import EngineConfig, EngineLimits, Exactness
from dflash.errors import OverloadedError, RequestError
from dflash.exactness import ExactnessReport
from dflash.grammar.compiler import GrammarCompiler
from dflash.grammar.matcher import Matcher
from dflash.grammar.text import Grammar
from dflash.loop import LoopHealth
from dflash.request import Decoded, FinishReason, GenerateRequest, TokenLogprobs, TokenOutput
from dflash.speculation_report import DrafterReport, SpeculationReport
from dflash.stats import LoopSnapshot, WhyPlain
from dflash.target import TargetFacts
from tests.rigs.byte_tokenizer import END, write_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"

Script = Callable[[GenerateRequest], tuple[int, ...]]


@dataclass
class FakeEngine:
    """The facts of a model that does not exist."""

    facts: TargetFacts
    model_folder: Path
    limits: EngineLimits
    exactness: ExactnessReport
    speculation: SpeculationReport


@dataclass
class _Live:
    request: GenerateRequest
    script: tuple[int, ...]
    num_sent: int = 0
    started_at_s: float = field(default_factory=time.monotonic)


@dataclass
class FakeLoop:
    """Says each request's script, some tokens a step.

    Attributes:
        script: What each request says; by default a function of seed, choice and absolute
            position, so that a request continued elsewhere says the same.
        tokens_per_step: How many tokens one message carries.
        may_step: Cleared, the engine stalls.
        step_s: Pause between two steps.
        failure: Set, every request ends with this error.
        submitted: All requests taken.
        num_looks: How often it was told to look around.
        aborted: How often each id was aborted.
    """

    engine: FakeEngine
    on_outputs: OnOutputs
    tokenizer: Tokenizer
    script: Script | None = None
    tokens_per_step: int = 1
    step_s: float = 0.0
    failure: str | None = None
    overload: OverloadedError | None = None
    is_healthy: bool = True
    submitted: list[GenerateRequest] = field(default_factory=list)
    num_looks: int = 0
    aborted: Counter[str] = field(default_factory=Counter)
    may_step: threading.Event = field(default_factory=threading.Event)
    num_steps: int = 0
    _live: dict[str, _Live] = field(default_factory=dict)
    _wakes: threading.Condition = field(default_factory=threading.Condition)
    _is_stopped: bool = False

    def __post_init__(self) -> None:
        self.may_step.set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def say(self, text: str) -> None:
        """Make every request say this text, then end."""
        token_ids = tuple(self.tokenizer.encode(text).ids)
        self.script = lambda _request: token_ids

    def start(self) -> None:
        self._thread.start()

    def matcher(self, grammar: Grammar) -> Matcher:
        return GrammarCompiler(self.engine.model_folder, self.engine.facts).matcher(grammar)

    def submit(self, request: GenerateRequest, matcher: Matcher | None = None) -> None:
        if self.overload is not None:
            raise self.overload
        limit = self.engine.facts.max_model_len
        if len(request.prompt_token_ids) + request.max_tokens > limit:
            raise RequestError(f"over the context of {limit}", "max_tokens")
        script = (self.script or self._endless)(request)
        with self._wakes:
            if len(self._live) >= self.engine.limits.max_num_waiting:
                raise OverloadedError("the queue is full; retry later", 3.0)
            self.submitted.append(request)
            self._live[request.request_id] = _Live(request, script)
            self._wakes.notify()

    def abort(self, request_id: str) -> None:
        with self._wakes:
            self.aborted[request_id] += 1
            is_live = self._live.pop(request_id, None) is not None
        if is_live:
            self.on_outputs((TokenOutput(request_id, (), finish_reason=FinishReason.ABORT),))

    def reconfigure(self, limits: EngineLimits) -> None:
        self.engine.limits = limits

    def look_around(self) -> None:
        self.num_looks += 1

    def drain(self, timeout_s: float) -> bool:
        with self._wakes:
            return self._wakes.wait_for(lambda: not self._live, timeout_s)

    def stop(self) -> None:
        with self._wakes:
            self._is_stopped = True
            self._wakes.notify_all()

    def health(self) -> LoopHealth:
        return LoopHealth(self.is_healthy, "stepping" if self.is_healthy else "no step for 99 s")

    def snapshot(self) -> LoopSnapshot:
        counts = {"num_running": len(self._live), "num_waiting": 0, "num_waiting_tokens": 0}
        pages = {"num_pages_used": len(self._live), "num_pages_cached": 0, "num_pages_total": 64}
        return LoopSnapshot(**counts, **pages, num_steps=self.num_steps)

    def _endless(self, request: GenerateRequest) -> tuple[int, ...]:
        letters = [self.tokenizer.token_to_id(letter) for letter in LETTERS]
        start = len(request.known_token_ids)
        end = len(request.prompt_token_ids) + request.max_tokens
        return tuple(
            letters[(position * 7 + request.seed + request.choice * 3) % len(letters)]
            for position in range(start, end)
        )

    def _run(self) -> None:
        while True:
            with self._wakes:
                self._wakes.wait_for(lambda: self._live or self._is_stopped)
                if self._is_stopped:
                    return
            self.may_step.wait(0.02)
            if self.may_step.is_set():
                self._step()
            if self.step_s:
                threading.Event().wait(self.step_s)

    def _step(self) -> None:
        with self._wakes:
            self.num_steps += 1
            outputs = [self._output(live) for live in self._live.values()]
            for output in outputs:
                if output.finish_reason is not None:
                    del self._live[output.request_id]
            self._wakes.notify_all()
        self.on_outputs(tuple(outputs))

    def _output(self, live: _Live) -> TokenOutput:
        request = live.request
        if self.failure is not None:
            return TokenOutput(
                request.request_id, (), finish_reason=FinishReason.ERROR, error=self.failure
            )
        budget = request.max_tokens - len(request.emitted_token_ids) - live.num_sent
        taken = live.script[live.num_sent : live.num_sent + min(self.tokens_per_step, budget)]
        live.num_sent += len(taken)
        reason, stop_id = None, None
        if live.num_sent + len(request.emitted_token_ids) == request.max_tokens:
            reason = FinishReason.LENGTH
        elif live.num_sent == len(live.script):
            reason, stop_id = FinishReason.STOP, self.tokenizer.token_to_id(END)
        logprobs = None
        if request.sampling.num_logprobs is not None:
            first = live.num_sent - len(taken)
            logprobs = tuple(self._logprobs(request, first + i, id_) for i, id_ in enumerate(taken))
        return TokenOutput(
            request.request_id,
            taken,
            logprobs,
            reason,
            stop_id,
            decoded=self._decoded(len(taken)) if live.num_sent > len(taken) else None,
            started_at_s=live.started_at_s,
        )

    def _decoded(self, num_tokens: int) -> Decoded:
        """Say that all but the last token of a message were drafts, and that one draft was not."""
        if self.tokens_per_step == 1 or num_tokens == 1:
            return Decoded("plain", why_plain=WhyPlain.PLAN.value)
        return Decoded("scripted", num_drafted=num_tokens, num_accepted=num_tokens - 1)

    def _logprobs(self, request: GenerateRequest, index: int, token_id: int) -> TokenLogprobs:
        """Numbers that tell which token of the answer they belong to."""
        count = request.sampling.num_logprobs or 0
        top = tuple(
            ((token_id + rank) % self.engine.facts.vocab_size, -0.01 * index - rank)
            for rank in range(count)
        )
        return TokenLogprobs(-0.01 * index, top)


def open_fake(
    config: EngineConfig, on_progress: OnProgress, on_outputs: OnOutputs
) -> RunningEngine:
    """Open a fake engine, as `deployments.engine_start.open_engine` opens the real one."""
    on_progress("pretend", 0.5)
    folder = Path(tempfile.mkdtemp(prefix="fake-model-"))
    tokenizer = write_tokenizer(folder)
    facts = TargetFacts(
        vocab_size=tokenizer.get_vocab_size(),
        max_model_len=config.max_model_len or 512,
        eos_token_ids=(tokenizer.token_to_id(END),),
        page_size=16,
        num_pages=64,
        num_layers=1,
    )
    exactness = ExactnessReport(Exactness.BITWISE, "scripted", "a script has no rounding")
    speculation = SpeculationReport(
        "scripted", 3, "a script drafts 3 letters", (DrafterReport("scripted", "script", 3),)
    )
    engine = FakeEngine(facts, folder, config.limits, exactness, speculation)
    loop = FakeLoop(engine, on_outputs, tokenizer)
    loop.start()
    return RunningEngine(engine, loop)  # type: ignore[arg-type]
