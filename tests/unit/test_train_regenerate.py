"""The target's answers to prompts: served as ever, recorded bit for bit, resumable anywhere."""

import dataclasses
import itertools

import pytest
import torch
from safetensors.torch import load_file

from dflash.batch import Run, batch_from_runs
from dflash.config import EngineConfig, EngineLimits, KVCacheConfig
from dflash.engine import Engine
from dflash.errors import ConfigError
from dflash.load import load_target
from dflash.request import GenerateRequest
from dflash.runner import Runner
from dflash.train import regenerate
from dflash.train.answer_sampling import Sampling
from dflash.train.conversation import Conversation
from dflash.train.prompts.file import line_of
from dflash.train.prompts.mix import Prompt
from dflash.train.regenerate import Regeneration, fill_folder, taps_by_rule
from dflash.train.sequences import SequenceFolder
from tests.rigs.byte_tokenizer import write_tokenizer
from tests.rigs.tiny_checkpoint import TINY_CONFIG, write_tiny_checkpoint

CONFIG = TINY_CONFIG | {"vocab_size": 320, "max_position_embeddings": 256, "eos_token_id": 1}
TAPS = (1, 0)
SAMPLING = Sampling(share=0.5, max_prompt_tokens=60, max_answer_tokens=24, max_tokens=160)
SHORT = dataclasses.replace(SAMPLING, min_answer_tokens=8)
PROMPTS = [
    Prompt("chat", ("Why?", "Say it again.")),
    Prompt("arithmetic", ("Two and two.",)),
    Prompt("chat", ("This prompt is left out. " * 9,)),
    Prompt("extraction", ("Who was there?",)),
    Prompt("rewriting", ("Shorten this: it is a long way to the sea.",)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("model"), config=CONFIG)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def runner(folder):
    kv_cache = KVCacheConfig(memory_gib=0.004)
    return load_target(EngineConfig(model=str(folder), num_threads=1, kv_cache=kv_cache)).runner


class Counting:
    """A target that counts the tokens it computes."""

    def __init__(self, runner, num_pages):
        self.facts = dataclasses.replace(runner.facts, num_pages=num_pages)
        self.num_tokens = 0
        self._runner = runner

    def forward(self, batch, taps=()):
        self.num_tokens += batch.num_tokens
        return self._runner.forward(batch, taps)


def regeneration(target, folder, sampling=SHORT, concurrency=4):
    limits = EngineLimits(max_num_seqs=concurrency, max_num_batched_tokens=16)
    return Regeneration(target, Conversation(folder), sampling, limits, TAPS)


def answers(target, folder, prompts=PROMPTS, **settings):
    return dict(regeneration(target, folder, **settings).answers(enumerate(prompts)))


def prefilled(runner, token_ids):
    pages = tuple(range(-(-len(token_ids) // 16)))
    batch = batch_from_runs([Run(tuple(token_ids.tolist()), 0, pages, 0)])
    hidden = runner.forward(batch, TAPS).hidden
    return torch.cat([hidden[layer] for layer in TAPS], dim=1)


def check_features(runner, answered):
    for sequence in itertools.chain.from_iterable(answered.values()):
        expected = prefilled(runner, sequence.token_ids)
        assert torch.equal(sequence.features[:-1], expected[:-1])
        assert not sequence.features[-1].any()
        assert sequence.features.dtype == torch.bfloat16


def same(one, other):
    return len(one) == len(other) and all(
        torch.equal(a.token_ids, b.token_ids)
        and torch.equal(a.features, b.features)
        and (a.kind, a.prompt_length, a.temperature) == (b.kind, b.prompt_length, b.temperature)
        for a, b in zip(one, other, strict=True)
    )


def test_features_are_those_of_a_prefill_of_the_whole_sequence(folder, runner):
    answered = answers(runner, folder)

    assert [len(answered[index]) for index in range(5)] == [2, 1, 0, 1, 1]
    check_features(runner, answered)


def test_features_survive_preemption(folder, runner):
    target = Counting(runner, num_pages=12)
    prompts = [Prompt("chat", (f"Prompt {index} of many.",)) for index in range(8)]
    long = dataclasses.replace(SHORT, max_answer_tokens=80)
    answered = answers(target, folder, prompts, sampling=long, concurrency=8)

    needed = sum(len(s.token_ids) - 1 for each in answered.values() for s in each)
    assert target.num_tokens > needed
    check_features(runner, answered)
    roomy = answers(runner, folder, prompts, sampling=long, concurrency=1)
    assert all(same(answered[index], roomy[index]) for index in range(8))


def test_every_token_is_computed_once_where_nothing_is_preempted(folder, runner):
    target = Counting(runner, runner.facts.num_pages)
    answered = answers(target, folder)

    needed = sum(len(s.token_ids) - 1 for each in answered.values() for s in each)
    assert target.num_tokens == needed


def test_answers_are_those_of_plain_serving(folder, runner):
    answered = answers(runner, folder)
    for index, turns in answered.items():
        params, seed = SHORT.of_prompt(index)
        for turn, sequence in enumerate(turns):
            prompt = tuple(sequence.token_ids[: sequence.prompt_length].tolist())
            limit = SHORT.max_answer(len(prompt), turn)
            engine = Engine(runner, EngineLimits())
            engine.submit(GenerateRequest("alone", prompt, limit, params, seed, choice=turn))
            served = []
            while engine.has_work:
                for output in engine.step().outputs:
                    served += output.token_ids
                    served += [output.stop_token_id] if output.stop_token_id is not None else []
            assert sequence.token_ids[sequence.prompt_length :].tolist() == served
            assert sequence.temperature == params.temperature


def test_a_stop_token_ends_the_sequence_that_it_ended(folder, runner):
    def ends_at_once(batch, taps=()):
        output = runner.forward(batch, taps)
        logits = torch.zeros_like(output.logits)
        logits[:, 1] = 1.0
        return dataclasses.replace(output, logits=logits)

    target = Runner(runner.facts, type("Executor", (), {"forward": staticmethod(ends_at_once)}))
    greedy = dataclasses.replace(SHORT, share=0.0)
    (sequence,) = answers(target, folder, PROMPTS[1:2], sampling=greedy)[0]

    assert sequence.token_ids[sequence.prompt_length :].tolist() == [1]


def test_a_second_turn_reads_the_whole_conversation(folder, runner):
    first, second = answers(runner, folder)[0]
    conversation = Conversation(folder)
    answer = first.token_ids[first.prompt_length :].tolist()
    messages = [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": conversation.text_of(answer)},
        {"role": "user", "content": "Say it again."},
    ]

    prompt = second.token_ids[: second.prompt_length].tolist()
    assert prompt == list(conversation.prompt_token_ids(messages))


def test_a_second_turn_without_room_is_left_out(folder, runner):
    tight = dataclasses.replace(SHORT, min_answer_tokens=150)

    assert len(answers(runner, folder, sampling=tight)[0]) == 1


def test_temperatures_follow_the_seed_and_the_share():
    temperatures = [SAMPLING.of_prompt(index)[0].temperature for index in range(1000)]
    other = dataclasses.replace(SAMPLING, seed=1)

    assert temperatures.count(1.0) == pytest.approx(500, abs=60)
    assert set(temperatures) == {0.0, 1.0}
    assert temperatures != [other.of_prompt(index)[0].temperature for index in range(1000)]
    assert len({SAMPLING.of_prompt(index)[1] for index in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"share": 1.5}, r"--temperature-share must be in \[0, 1\], got 1.5"),
        ({"max_prompt_tokens": 160}, "max_prompt_tokens must be in"),
        ({"temperature": -1.0}, "--temperature must be in"),
        ({"temperature": float("nan")}, "--temperature must be in"),
        ({"max_answer_tokens": 0}, "--max-answer-tokens must be 1 or more, got 0"),
    ],
)
def test_a_sampling_that_cannot_work_is_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        dataclasses.replace(SAMPLING, **change)


@pytest.mark.parametrize(
    ("option", "value"), [("--prompts-per-shard", "0"), ("--max-gib", "nan"), ("--max-gib", "-1")]
)
def test_a_number_that_cannot_work_is_refused(tmp_path, capsys, option, value):
    arguments = ["--prompts", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    assert regenerate.main([*arguments, f"{option}={value}"]) == 1
    assert f"{option} must be" in capsys.readouterr().err


def fill(target, model, out, max_bytes=1 << 30):
    folder = SequenceFolder(out)
    return fill_folder(folder, regeneration(target, model), PROMPTS, 2, max_bytes)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_run_that_is_killed_anywhere_goes_on_to_the_same_bytes(folder, runner, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    assert fill(runner, folder, whole)
    expected = contents(whole)
    assert len(expected) == 6
    out = tmp_path / "cut"
    out.mkdir()

    class Dies(Counting):
        def forward(self, batch, taps=()):
            if self.num_tokens > self.limit:
                raise KeyboardInterrupt
            return super().forward(batch, taps)

    num_kills = 0
    for limit in range(20, 2000, 60):
        target = Dies(runner, runner.facts.num_pages)
        target.limit = limit
        try:
            fill(target, folder, out)
            break
        except KeyboardInterrupt:
            num_kills += 1
            assert contents(out).items() <= expected.items()

    assert num_kills > 2
    assert contents(out) == expected


def test_shards_that_are_there_are_not_made_again(folder, runner, tmp_path):
    assert fill(runner, folder, tmp_path)
    target = Counting(runner, runner.facts.num_pages)

    assert fill(target, folder, tmp_path)
    assert target.num_tokens == 0


def test_the_bound_on_disk_stops_the_run_and_a_larger_one_lets_it_go_on(folder, runner, tmp_path):
    assert not fill(runner, folder, tmp_path, max_bytes=30_000)
    assert SequenceFolder(tmp_path).num_bytes() <= 30_000
    assert fill(runner, folder, tmp_path)
    assert SequenceFolder(tmp_path).indices() == [0, 1, 2]


def test_default_taps_are_those_of_published_drafters():
    assert taps_by_rule(30) == (1, 8, 14, 20, 27)
    assert taps_by_rule(36) == (1, 9, 17, 25, 33)
    assert taps_by_rule(64) == (1, 16, 31, 46, 61)
    with pytest.raises(ConfigError, match=r"2 layers, too few for 5 taps.*--taps"):
        taps_by_rule(2)


def test_the_command_writes_shards_and_says_what_made_them(folder, tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(line_of(prompt) + "\n" for prompt in PROMPTS))
    out = tmp_path / "out"
    arguments = ["--prompts", str(prompts), "--out", str(out), "--model", str(folder)]
    arguments += ["--kv-gib", "0.004", "--taps", "1,0", "--max-answer-tokens", "12"]
    arguments += ["--max-tokens", "250", "--max-prompt-tokens", "60", "--prompts-per-shard", "4"]

    assert regenerate.main(arguments) == 0

    manifest = SequenceFolder(out).manifest()
    assert manifest.taps == (1, 0)
    assert manifest.fingerprint == load_target(EngineConfig(model=str(folder))).fingerprint
    shards = [load_file(path) for path in sorted(out.glob("*.safetensors"))]
    assert [len(shard["prompt_lengths"]) for shard in shards] == [3, 1]
    assert regenerate.main([*arguments, "--seed", "3"]) == 1
    assert "name another --out folder" in capsys.readouterr().err
    out.joinpath("shard-00001.safetensors").unlink()
    assert regenerate.main([*arguments, "--max-gib", "0.000001"]) == 0
    assert "raise --max-gib to go on" in capsys.readouterr().out
