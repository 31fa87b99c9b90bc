"""Whose `dflash` this process would import: ours, or a stranger of the same name."""

from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

_OWN_DISTRIBUTION = "dflash-serve"


class ForeignEngineError(ImportError):
    """`dflash` resolves to another distribution than the one this package belongs to."""


def require_own_engine() -> None:
    """Make sure that `import dflash` finds the package that lies beside `deployments`.

    A public package index carries an unrelated distribution that installs a package of the
    same name; with both in one environment the first on the path wins, and in one folder the
    files of the one that was installed last.

    Raises:
        ForeignEngineError: `dflash` is missing, lies elsewhere, or another distribution claims
            it too; the message names places or distributions, and the fix.
    """
    home = Path(__file__).resolve().parent.parent
    spec = find_spec("dflash")
    found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
    if found is None or found.parent.parent != home:
        raise ForeignEngineError(
            f"'import dflash' finds {found or 'nothing'}, but this server's engine is "
            f"{home / 'dflash'}. Another distribution named 'dflash' shares this environment: "
            "run 'pip uninstall dflash', or start from the folder that holds serve_config.yaml"
        )
    strangers = set(packages_distributions().get("dflash", ())) - {_OWN_DISTRIBUTION}
    if strangers:
        names = " ".join(sorted(strangers))
        raise ForeignEngineError(
            f"another distribution installs a package 'dflash' over this server's engine: {names}. "
            f"Run 'pip uninstall {names}', then 'pip install --force-reinstall --no-deps' with "
            f"{_OWN_DISTRIBUTION}"
        )
