"""A whole `serve_config.yaml` checked without starting anything: Serve drops unknown keys."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from ray.serve.schema import ServeDeploySchema

from deployments.app import ENGINE_NAME
from deployments.config import ServeArgs, UserConfig
from deployments.guard.keys import read_keys
from deployments.ingress import INGRESS_NAME
from deployments.llm_configs import LLM_CONFIGS, moved_from
from deployments.serve_schema import problems_by_serve, scaling_problems
from deployments.strict import KeyPath, Problem, problems_in
from dflash.errors import ConfigError

_MAX_PORT = 65_535
_OUR_IMPORT_PATH = "deployments.app:build"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file.

    Attributes:
        content: As YAML reads it; None where it cannot be read.
        root: With the lines; None where it is empty or cannot be read.
        problems: Of the file, before anything that it names is looked at; in order.
    """

    content: object
    root: yaml.Node | None
    problems: tuple[Problem, ...]

    def placed(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return problems with their lines, in the order of these."""
        found = [replace(each, line=_line_of(self.root, each.path)) for each in problems]
        return sorted(found, key=lambda each: each.line or 0)

    def applications(self) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
        """Yield path and content of each application."""
        content = self.content if isinstance(self.content, Mapping) else {}
        for index, application in enumerate(_mappings(content.get("applications"))):
            yield ("applications", index), application


def read_config_file(path: Path) -> ConfigFile:
    """Return a file with its problems; one that cannot be read is a problem, too."""
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except OSError as error:
        return _unreadable(Problem((str(path),), f"The file cannot be read: {error.strerror}."))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        reason = getattr(error, "problem", None) or error
        return _unreadable(Problem((str(path),), f"The file is not YAML: {reason}.", line=line))
    bare = ConfigFile(content, yaml.compose(text, Loader=yaml.SafeLoader), ())
    return replace(bare, problems=tuple(bare.placed(problems_of(content))))


def _unreadable(problem: Problem) -> ConfigFile:
    return ConfigFile(None, None, (problem,))


def is_ours(application: Mapping[str, Any]) -> bool:
    """Return whether an application of a file is this server."""
    return application.get("import_path") == _OUR_IMPORT_PATH


def problems_of(config: object) -> list[Problem]:
    """Return the problems of a configuration, read as YAML reads it."""
    if not isinstance(config, Mapping):
        return [Problem((), "The file must be a mapping with a key 'applications'.", config)]
    found = [*problems_by_serve(ServeDeploySchema, config, ())]
    found += _port_problems(config.get("http_options"))
    for index, application in enumerate(_mappings(config.get("applications"))):
        found += _application_problems(application, ("applications", index))
    return found


def _port_problems(http_options: object) -> Iterator[Problem]:
    """Find a port that no socket can have; Serve finds it when it binds."""
    port = http_options.get("port") if isinstance(http_options, Mapping) else None
    if isinstance(port, int) and not 0 <= port <= _MAX_PORT:
        yield Problem(("http_options", "port"), f"It must be in [0, {_MAX_PORT}].", port)


def _application_problems(application: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    if is_ours(application):
        args = application.get("args") or {}
        yield from _args_problems(args, (*path, "args"))
        if isinstance(args, Mapping):
            yield from _keys_problems(args.get("keys_file"), (*path, "args", "keys_file"))
    for index, deployment in enumerate(_mappings(application.get("deployments"))):
        at = (*path, "deployments", index)
        yield from scaling_problems(deployment, at)
        if not is_ours(application):
            continue
        name = deployment.get("name")
        if name not in (INGRESS_NAME, ENGINE_NAME):
            message = f"This application has {INGRESS_NAME} and {ENGINE_NAME}."
            yield Problem((*at, "name"), message, name)
        user_config = deployment.get("user_config")
        if user_config is None:
            continue
        if name == ENGINE_NAME:
            yield from problems_in(UserConfig, user_config, (*at, "user_config"))
        else:
            yield Problem((*at, "user_config"), f"Only {ENGINE_NAME} takes one.", user_config)


def _args_problems(args: object, path: KeyPath) -> list[Problem]:
    if isinstance(args, Mapping) and LLM_CONFIGS in args:
        found = moved_from(args).problems
        return [replace(each, path=(*path, *each.path)) for each in found]
    return problems_in(ServeArgs, args, path)


def _keys_problems(keys_file: object, path: KeyPath) -> Iterator[Problem]:
    """Find what is wrong with a keys file that is here; it may well be on the servers only."""
    try:
        if isinstance(keys_file, str) and Path(keys_file).is_file():
            read_keys(Path(keys_file).read_bytes())
    except OSError as error:
        yield Problem(path, f"The file cannot be read: {error.strerror}.", keys_file)
    except ConfigError as error:
        yield Problem(path, f"{error}.", keys_file)


def _mappings(value: object) -> list[Mapping[str, Any]]:
    items = value if isinstance(value, list) else []
    return [item if isinstance(item, Mapping) else {} for item in items]


def _line_of(root: yaml.Node | None, path: KeyPath) -> int | None:
    """Return the line of the deepest part of a path that the file has."""
    node, line = root, None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == part), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            item: yaml.Node = node.value[part]
            line, node = item.start_mark.line + 1, item
    return line
