"""The model's tokenizer and chat template, read from its files without running any of its code."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NoReturn, cast

from jinja2 import Environment, Template, TemplateError
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer, decoders

from deployments.openai.text import ByteTextStream, TextStream, WindowTextStream
from deployments.openai.tool_calls import BEGIN
from dflash.errors import CheckpointError

# What a checkpoint folder may hold that matters here; the first one is required.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

_SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")
# What a template reads without a client's doing.
_ALWAYS_GIVEN = frozenset(
    {"messages", "add_generation_prompt", "raise_exception", "strftime_now", *_SPECIAL_NAMES}
)


class ChatTemplateError(ValueError):
    """The template refused the messages; the text is the template's own."""


class UnreadVariableError(ChatTemplateError):
    """The template would ignore a variable that it is given."""


class TextTokenizer:
    """Text to ids and back, as the checkpoint's own files say."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """Read the files.

        Args:
            files: Contents by name, of `TOKENIZER_FILES`.

        Raises:
            CheckpointError: A file is missing, is not what its name says, or its chat template
                does not compile.
        """
        if TOKENIZER_FILES[0] not in files:
            raise CheckpointError(
                "the checkpoint folder has no tokenizer.json; save its tokenizer there in the "
                "'fast' format"
            )
        try:
            self._tokenizer = Tokenizer.from_str(files[TOKENIZER_FILES[0]].decode())
            config = json.loads(files.get(TOKENIZER_FILES[1], b"{}"))
        # The tokenizers library raises bare Exception for a file it cannot read.
        except Exception as error:
            raise CheckpointError(f"the tokenizer files cannot be read: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._special_ids = frozenset(
            token_id
            for token_id, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
        )
        self._is_byte_level = isinstance(self._tokenizer.decoder, decoders.ByteLevel)
        self._byte_token_ids = frozenset(
            token_id
            for byte in range(256)
            if (token_id := self._tokenizer.token_to_id(f"<0x{byte:02X}>")) is not None
        )
        source = _template_source(files, config)
        self._template = _compile_template(source)
        self.shows_tool_calls = source is not None and "tool_calls" in source
        self._template_variables = _variables_of(source)
        self.why_no_tools = _why_no_tools(source, self._template_variables)
        self._special_tokens = {
            name: _token_text(config[name]) for name in _SPECIAL_NAMES if config.get(name)
        }
        self.bytes_of = lru_cache(maxsize=65_536)(self._bytes_of)
        self._shown_bytes_of = lru_cache(maxsize=65_536)(self._shown_bytes)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Return the ids of a text, with the tokenizer's own start ids where it has them."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def encode_long(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Return the ids of `encode`, for a thread: other threads run meanwhile.

        Encoding one text holds the interpreter's lock to its end; encoding a batch does not.
        """
        (encoding,) = self._tokenizer.encode_batch_fast(
            [text], add_special_tokens=add_special_tokens
        )
        return tuple(encoding.ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids; special tokens have none."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def spell(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens as they are written."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)

    def name_of(self, token_id: int) -> str:
        """Return a token as the vocabulary has it."""
        return self._tokenizer.id_to_token(token_id) or ""

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any] = MappingProxyType({}),
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the prompt of a chat.

        Args:
            messages: As templates know them.
            variables: What the template may read besides.
            add_generation_prompt: Whether the prompt ends where the assistant's answer begins.

        Raises:
            ChatTemplateError: The model has no chat template, or it refuses these messages.
            UnreadVariableError: It reads no such variable.
        """
        if self._template is None:
            raise ChatTemplateError("this model has no chat template; use /v1/completions")
        unread = sorted(set(variables) - self._template_variables)
        if unread:
            raise UnreadVariableError(
                f"the model's chat template reads no {unread[0][:64]!a}, only "
                f"{', '.join(sorted(self._template_variables)) or 'messages'}"
            )
        known = {
            **self._special_tokens,
            "messages": messages,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            text = self._template.render(**variables, **known)
        # A template is a stranger's program, and what it is given is another's: it can fail anyhow.
        except Exception as error:
            raise ChatTemplateError(f"the model's chat template refuses them: {error}") from error
        try:
            text.encode()
        except UnicodeEncodeError as error:
            # A call's arguments are JSON in a text: its escapes are read after texts were checked.
            raise ChatTemplateError(
                "a call, a tool or a variable holds half a character (a lone surrogate)"
            ) from error
        return text

    def open_stream(self) -> TextStream:
        """Return a fresh text stream for one choice."""
        if self._is_byte_level:
            return ByteTextStream(self._shown_bytes_of)
        return WindowTextStream(self.decode, self._byte_token_ids | self._special_ids)

    def _shown_bytes(self, token_id: int) -> bytes:
        return b"" if token_id in self._special_ids else self.bytes_of(token_id)

    def _bytes_of(self, token_id: int) -> bytes:
        """Return the bytes of one token taken alone, special tokens as they are written."""
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return b""
        if token_id in self._byte_token_ids:
            return bytes([int(token[3:5], 16)])
        if not self._is_byte_level:
            return token.replace("\u2581", " ").encode()
        try:
            return bytes([_BYTE_OF_CHARACTER[character] for character in token])
        except KeyError:
            # An added token, written as itself.
            return token.encode()


def _byte_of_character() -> dict[str, int]:
    """Return the byte-level alphabet: printable bytes stand for themselves, others from 256 up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + rank): byte for rank, byte in enumerate(others)})
    return alphabet


_BYTE_OF_CHARACTER = _byte_of_character()


def _template_source(files: Mapping[str, bytes], config: Mapping[str, Any]) -> str | None:
    if TOKENIZER_FILES[2] in files:
        return files[TOKENIZER_FILES[2]].decode()
    source = config.get("chat_template")
    if isinstance(source, list):
        named = cast("list[dict[str, str]]", source)
        return next((each["template"] for each in named if each["name"] == "default"), None)
    return source


def _compile_template(source: str | None) -> Template | None:
    """Compile a chat template in a sandbox: checkpoints come from strangers."""
    if source is None:
        return None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters.update(tojson=_as_json)  # pyright: ignore[reportUnknownMemberType]
    environment.globals.update(  # pyright: ignore[reportUnknownMemberType]
        raise_exception=_raise_template_error, strftime_now=_strftime_now
    )
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise CheckpointError(f"the chat template does not compile: {error}") from error


def _variables_of(source: str | None) -> frozenset[str]:
    """Return the names that a template reads and does not set, besides what is always given."""
    if source is None:
        return frozenset()
    syntax = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(source)
    return frozenset(find_undeclared_variables(syntax)) - _ALWAYS_GIVEN


def _why_no_tools(source: str | None, variables: frozenset[str]) -> str | None:
    """Return why tools cannot be called with a template; None where they can."""
    fix = "serve a checkpoint whose template does as Qwen3's, or leave tools out"
    if source is None or "tools" not in variables:
        return f"this model's chat template has no place for them; {fix}"
    # Later templates write a function's arguments as tags of their own inside the same tag.
    if BEGIN not in source or "<function=" in source:
        return f"this model's chat template does not write calls as JSON in {BEGIN}; {fix}"
    return None


def _as_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_template_error(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _token_text(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else token["content"]
