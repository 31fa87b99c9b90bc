from pathlib import Path

import pytest

from dflash.cache_folder import cache_dir_from, default_cache_dir, replaced_whole


@pytest.mark.parametrize(
    ("own", "shared", "expected"),
    [
        ("/srv/cache", "/xdg", "/srv/cache"),
        (None, "/xdg", "/xdg/dflash-serve"),
        (None, "relative", "/home/someone/.cache/dflash-serve"),
        ("", "", "/home/someone/.cache/dflash-serve"),
        ("~/cache", None, "/home/someone/cache"),
    ],
)
def test_the_own_variable_wins_over_the_shared_one_and_that_over_the_home_folder(
    monkeypatch, own, shared, expected
):
    monkeypatch.setenv("HOME", "/home/someone")
    for name, value in (("DFLASH_CACHE_DIR", own), ("XDG_CACHE_HOME", shared)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)

    assert default_cache_dir() == Path(expected)
    assert cache_dir_from(None) == Path(expected)
    assert cache_dir_from("/asked") == Path("/asked")


def test_a_folder_is_replaced_only_when_its_successor_is_complete(tmp_path):
    folder = tmp_path / "model"
    with replaced_whole(folder) as new:
        (new / "file").write_text("old")

    with pytest.raises(UnicodeEncodeError), replaced_whole(folder) as new:
        (new / "file").write_text("half \ud800", encoding="utf-8")
    assert (folder / "file").read_text() == "old"

    with replaced_whole(folder) as new:
        (new / "file").write_text("new")
        assert (folder / "file").read_text() == "old"
    assert (folder / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
