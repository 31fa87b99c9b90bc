"""A loaded model as it crosses a handle to an ingress: its card, then its tokenizer's files."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from deployments.openai.tokenizer import TOKENIZER_FILES
from deployments.wire import FilePart, ModelCard
from dflash.errors import CheckpointError

if TYPE_CHECKING:
    # It imports torch, which the ingress does without.
    from dflash.engine import Engine

# A handle's message may be limited to 4 MiB; tokenizer files can be larger.
_PART_BYTES = 1024 * 1024


async def model_parts(engine: "Engine") -> AsyncIterator[ModelCard | FilePart]:
    """Yield an engine's model: its card, then its tokenizer files in parts.

    Raises:
        CheckpointError: The checkpoint has no folder, so no tokenizer.
    """
    exactness, speculation = engine.exactness, engine.speculation
    if engine.model_folder is None or exactness is None or speculation is None:
        raise CheckpointError("the engine was loaded without a model folder; load one from it")
    yield ModelCard(
        vocab_size=engine.facts.vocab_size,
        max_model_len=engine.facts.max_model_len,
        exactness_mode=str(exactness.mode),
        exactness_form=exactness.form,
        exactness_detail=exactness.detail,
        speculation=speculation,
    )
    for name in TOKENIZER_FILES:
        path = engine.model_folder / name
        content = await asyncio.to_thread(path.read_bytes) if path.exists() else b""
        for start in range(0, len(content), _PART_BYTES):
            yield FilePart(name, content[start : start + _PART_BYTES])
