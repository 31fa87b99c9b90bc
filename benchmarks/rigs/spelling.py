"""A vocabulary for `HashLM`: its ids spell characters and scraps of JSON, so that it can obey."""

import json
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dflash.grammar.compiler import GrammarCompiler
from dflash.grammar.text import Grammar, GrammarKind
from dflash.target import TargetFacts

END = "<|end|>"
_ASCII = [chr(code) for code in range(0x20, 0x7F)] + ["\n"]
_SCRAPS = ('{"', '":', '",', ' "', '"}', "true", "false", "null", "},", "],", '"name"', '"age"')
_RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "ab"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def spelling_tokenizer(vocab_size: int = 251) -> Tokenizer:
    """Return a byte-level tokenizer of this many ids, the end of sequence first.

    It knows ASCII, some scraps of JSON, and pairs of letters as far as there are ids.
    """
    pairs = ("".join(pair) for pair in product("etaoinshrdlu", repeat=2))
    words = [*_ASCII, *_SCRAPS, *pairs][: vocab_size - 1]
    # The byte-level alphabet moves what cannot be printed, space among it, up by 256.
    spelt = [word.replace(" ", "\u0120").replace("\n", "\u010a") for word in words]
    tokenizer = Tokenizer(models.BPE({END: 0, **{w: i for i, w in enumerate(spelt, 1)}}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    return tokenizer


def compiler_of(tokenizer: Tokenizer, facts: TargetFacts) -> GrammarCompiler:
    """Return a compiler of grammars for a model with this vocabulary."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
        compiler = GrammarCompiler(Path(folder), facts)
        if isinstance(compiler.vocabulary, str):
            raise ValueError(compiler.vocabulary)
    return compiler


def json_grammar(schema: object, field: str = "response_format") -> Grammar:
    """Return a request's grammar for a JSON Schema."""
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema), field)


RECORD = json_grammar(_RECORD)
ANY_OBJECT = json_grammar({"type": "object"})
