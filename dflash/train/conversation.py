"""What a target reads of a conversation: its own chat template and tokenizer, as it is served."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from dflash.errors import CheckpointError

_SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")


class Conversation:
    """Turns messages into the ids of a prompt, and ids of an answer back into text."""

    def __init__(self, model_folder: Path) -> None:
        """Read the tokenizer and the template from a checkpoint's folder.

        Raises:
            CheckpointError: One of them is missing or unreadable.
        """
        try:
            self._tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
            config_file = model_folder / "tokenizer_config.json"
            config = json.loads(config_file.read_text()) if config_file.exists() else {}
            self._template = _compiled(_template_source(model_folder, config))
        # The tokenizers library raises bare Exception for a file it cannot read.
        except Exception as error:
            raise CheckpointError(
                f"{model_folder} has no tokenizer and chat template that can be read ({error}); "
                "train for a model that is served as a chat"
            ) from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._special_tokens = {
            name: _token_text(config[name]) for name in _SPECIAL_NAMES if config.get(name)
        }

    def prompt_token_ids(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Return the ids of messages up to where the next answer begins.

        Args:
            messages: Each with a ``role`` and a ``content``.

        Raises:
            CheckpointError: The template refuses them.
        """
        try:
            text = self._template.render(
                messages=messages, add_generation_prompt=True, **self._special_tokens
            )
        except TemplateError as error:
            raise CheckpointError(f"the chat template refuses a prompt: {error}") from error
        # The template writes the special tokens itself.
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Return the text of an answer's ids; special tokens have none."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)


def _template_source(folder: Path, config: Mapping[str, object]) -> str:
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    source = config["chat_template"]
    if isinstance(source, list):
        return next(each["template"] for each in source if each["name"] == "default")
    return str(source)


def _compiled(source: str) -> Template:
    """Compile a template in a sandbox: checkpoints come from strangers."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters.update(tojson=_as_json)
    environment.globals.update(raise_exception=_refuse, strftime_now=_now)
    return environment.from_string(source)


def _as_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _token_text(token: str | Mapping[str, str]) -> str:
    return token if isinstance(token, str) else token["content"]
