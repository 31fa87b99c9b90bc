"""Paragraphs of permissively licensed text: the documentation inside installed packages.

Sources are read as text, never imported, so a paragraph is the same whatever runs.
"""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

# Package and the licence its documentation is under; the engine needs each of these.
LICENCES = {
    "fastapi": "MIT",
    "huggingface_hub": "Apache-2.0",
    "jinja2": "BSD-3-Clause",
    "numpy": "BSD-3-Clause",
    "pydantic": "MIT",
    "ray": "Apache-2.0",
    "starlette": "BSD-3-Clause",
    "torch": "BSD-3-Clause",
    "tqdm": "MIT and MPL-2.0",
}
# Modules of Python's own library (PSF-2.0).
_STANDARD_LIBRARY = """
    argparse ast asyncio base64 bisect calendar collections concurrent configparser contextlib
    csv dataclasses datetime decimal difflib email enum fractions functools getpass gettext glob
    gzip heapq html http imaplib inspect ipaddress json locale logging mailbox mimetypes
    multiprocessing numbers optparse os pathlib pdb pickle platform poplib pprint profile queue
    random re sched secrets selectors shelve shlex shutil smtplib socket sqlite3 statistics
    string subprocess tarfile tempfile textwrap threading timeit tokenize traceback turtle
    typing urllib uuid warnings wave webbrowser weakref xml zipfile
"""
_MIN_WORDS, _MAX_WORDS = 25, 110
_MAX_FILES_EACH = 400
# Markup, prompts and tables are no prose.
_MARKUP = re.compile(r">>>|\.\. |::|:param|:class:|:func:|:meth:|\{|\}|<[a-z/]|={4}|-{4}|\||\\")


def documentation_passages() -> tuple[str, ...]:
    """Return the paragraphs of prose in the docstrings of the packages, in a fixed order."""
    found: dict[str, None] = {}
    # None shows the bar on a terminal only.
    for path in tqdm(list(_sources()), desc="reading passages", unit=" files", disable=None):
        for docstring in _docstrings(path):
            found.update(dict.fromkeys(_paragraphs(docstring)))
    return tuple(found)


def _sources() -> Iterator[Path]:
    for package in (*LICENCES, *_STANDARD_LIBRARY.split()):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None or not spec.has_location:
            continue
        path = Path(spec.origin)
        if not spec.submodule_search_locations:
            yield path
            continue
        folder = path.parent
        files = sorted(folder.rglob("*.py"))
        kept = [file for file in files if "test" not in str(file.relative_to(folder))]
        yield from kept[:_MAX_FILES_EACH]


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def _paragraphs(docstring: str) -> Iterator[str]:
    for paragraph in docstring.split("\n\n"):
        text = " ".join(paragraph.replace("``", "`").split())
        is_prose = text[:1].isupper() and text.endswith(".") and not _MARKUP.search(text)
        if is_prose and _MIN_WORDS <= len(text.split()) <= _MAX_WORDS and text.isascii():
            yield text
