import pytest

from deployments import cli


def test_help_lists_every_verb(capsys):
    assert cli.main(["--help"]) == 0
    assert "train" in capsys.readouterr().out


@pytest.mark.parametrize(("argv", "named"), [([], "missing"), (["trian"], "'trian'")])
def test_what_is_no_verb_is_named_beside_those_that_are(argv, named, capsys):
    assert cli.main(argv) == 2
    message = capsys.readouterr().err
    assert named in message
    assert "train" in message


def test_a_verb_is_given_the_arguments_after_it(monkeypatch):
    seen = []
    monkeypatch.setattr("dflash.train.__main__.main", lambda argv: seen.append(argv) or 7)
    assert cli.main(["train", "fit", "--help"]) == 7
    assert seen == [["fit", "--help"]]
