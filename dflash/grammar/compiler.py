"""From a grammar's text to a matcher: compiled off the step path, within bounds, and kept."""

import threading
from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from typing import Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from tokenizers import Tokenizer

from dflash.errors import RequestError
from dflash.grammar.matcher import Matcher, reason_of
from dflash.grammar.notation import rules_of, schema_of
from dflash.grammar.text import Grammar, GrammarKind
from dflash.grammar.trial import problem_of
from dflash.target import TargetFacts

MAX_KEPT: Final = 64
_TOKENIZER = "tokenizer.json"

# Of one grammar: what a step may spend on a mask (some 5 ms), and what its states may take in
# memory (some 2 kB each). Errors must not quote the output, which logs would keep.
_LIMITS: Final = {
    "initial_lexer_fuel": 500_000,
    "step_lexer_fuel": 50_000,
    "max_lexer_states": 10_000,
    "max_grammar_size": 100_000,
    "verbose_errors": False,
}

_Key = tuple[GrammarKind, str]


class GrammarCompiler:
    """Compiles grammars for one model's vocabulary. Every method may be called from any thread."""

    def __init__(self, model_folder: Path, facts: TargetFacts) -> None:
        """Read nothing yet.

        Args:
            model_folder: Where the model's tokenizer lies.
            facts: Of the target.
        """
        self._file = model_folder / _TOKENIZER
        self._facts = facts
        self._kept: OrderedDict[_Key, LLMatcher | str] = OrderedDict()
        self._lock = threading.Lock()
        self._compiling = threading.Lock()

    @cached_property
    def vocabulary(self) -> LLTokenizer | str:
        """The vocabulary as the library knows it, or why there is none; read once, in a second."""
        if not self._facts.eos_token_ids:
            return "it has no end-of-sequence token"
        try:
            tokenizer = Tokenizer.from_str(self._file.read_text(encoding="utf-8"))
            tokenizer.no_padding()
            tokenizer.no_truncation()
            return LLTokenizer(
                tokenizer.to_str(),
                n_vocab=self._facts.vocab_size,
                eos_token=list(self._facts.eos_token_ids),
            )
        # The tokenizers library raises bare Exception for a file it cannot read.
        except Exception as error:  # noqa: BLE001 - told to whoever asks for a grammar
            return f"its {_TOKENIZER} cannot be used: {error}"

    def matcher(self, grammar: Grammar) -> Matcher:
        """Return a matcher before the first token, compiled now unless the grammar is known.

        A grammar that is new is compiled twice, first for trial: that takes from a tenth of a
        second to `dflash.grammar.trial.MAX_SECONDS`.

        Raises:
            RequestError: The model has no vocabulary for it, or it cannot be compiled in bounds.
        """
        vocabulary = self.vocabulary
        if isinstance(vocabulary, str):
            raise RequestError(
                f"{grammar.field} cannot be served with this model: {vocabulary}", grammar.field
            )
        start = self._look_up(grammar)
        if start is None:
            # One at a time: compiling takes a processor for itself.
            with self._compiling:
                start = self._look_up(grammar) or _compiled(grammar, vocabulary)
                self._keep(grammar, start)
        if isinstance(start, str):
            raise RequestError(f"{grammar.field} cannot be enforced: {start}", grammar.field)
        return Matcher(start, self._facts.eos_token_ids, grammar.field)

    def _look_up(self, grammar: Grammar) -> LLMatcher | str | None:
        with self._lock:
            key = (grammar.kind, grammar.text)
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, grammar: Grammar, start: LLMatcher | str) -> None:
        with self._lock:
            self._kept[grammar.kind, grammar.text] = start
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)


def _compiled(grammar: Grammar, vocabulary: LLTokenizer) -> LLMatcher | str:
    """Return the compiled grammar, or why it cannot be had."""
    problem = problem_of(schema_of(grammar), _LIMITS)
    if problem is not None:
        return problem
    limits = LLParserLimits(**_LIMITS)
    start = LLMatcher(vocabulary, rules_of(grammar, vocabulary), log_level=0, limits=limits)
    return reason_of(start) or start
