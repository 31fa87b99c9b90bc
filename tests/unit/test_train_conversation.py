"""Conversations: rendered for training as the server renders them."""

import json

import pytest

from deployments.openai.tokenizer import TextTokenizer
from dflash.errors import CheckpointError
from dflash.train.conversation import Conversation
from tests.rigs.byte_tokenizer import (
    TEMPLATE,
    byte_level_tokenizer,
    tokenizer_files,
    write_tokenizer,
)


@pytest.mark.parametrize("where", ["tokenizer_config.json", "chat_template.jinja", "named"])
def test_a_conversation_is_rendered_as_the_server_renders_it(tmp_path, where):
    files = tokenizer_files(byte_level_tokenizer())
    if where == "chat_template.jinja":
        files[where] = b"{{ eos_token }}" + TEMPLATE.encode()
    if where == "named":
        templates = [{"name": "tools", "template": "no"}, {"name": "default", "template": TEMPLATE}]
        files["tokenizer_config.json"] = json.dumps({"chat_template": templates}).encode()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    messages = [
        {"role": "user", "content": "  héllo\n"},
        {"role": "assistant", "content": "世界"},
        {"role": "user", "content": "<|im_end|> stop"},
    ]

    server = TextTokenizer(files)
    rendered = server.encode(server.render_chat(messages), add_special_tokens=False)
    conversation = Conversation(tmp_path)
    assert conversation.prompt_token_ids(messages) == rendered
    assert conversation.text_of(rendered) == server.decode(rendered)


def test_a_model_without_a_chat_template_is_refused(tmp_path):
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")

    with pytest.raises(CheckpointError, match="train for a model that is served as a chat"):
        Conversation(tmp_path)
