"""Functions to be completed from a signature and a docstring with examples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dflash.train.prompts.draw import Draw
from dflash.train.prompts.exercises.choice import EXERCISES
from dflash.train.prompts.operations.operation import operation
from dflash.train.prompts.template import fill

_REQUESTS = (
    "Complete this Python function.",
    "Fill in the body of the following function so that its examples hold.",
    "Implement the function described below.",
    "Finish the code. Return the whole function in one code block.",
    "Here is a signature with a docstring. Write the implementation.",
    "Please write the missing body; do not change the signature.",
    "The function below has a description and no code yet. Supply the code.",
    "Write Python code for this stub and keep the docstring.",
    "Implement this so that a doctest run over it would succeed.",
    "Can you complete the following function and explain it briefly?",
    "Solve this programming exercise in Python:",
    "Turn this specification into working code.",
    "Provide a correct solution for this task. All of its examples must pass:",
    "Write the function below; hidden tests will check it.",
)
_AFTERWORDS = (
    *("",) * 8,
    "\nOnly answer with code.",
    "\nUse nothing but the standard library.",
    "\nAim for clear names and few lines.",
    "\nAdd a short comment to each step.",
)
_LEADS = ("", "", "", "find_", "get_", "make_", "compute_", "collect_", "select_", "build_")
_OPENINGS = (
    "Take {words} and work through it: the function {keep}, {change} and {gather}.",
    "Given {words}, this function {keep}, {change} and then {gather}.",
    "The argument is {words}. The function {keep}. It then {change}, and {gather}.",
    "For {words}: a call {keep}, {change}, and {gather}.",
    "Process {words}.\n    First it {keep}; next it {change}; finally it {gather}.",
)
_EXAMPLES = (
    "    >>> {call}\n    {result}\n",
    "    >>> {call}\n    {result}\n",
    "    {call} == {result}\n",
    "    {call} -> {result}\n",
    "    {call} returns {result}\n",
    "    * {call} gives {result}\n",
)
_HEADINGS = ("", "", "    Examples:\n", "    For example:\n", "    Example\n")


@dataclass(frozen=True, slots=True)
class _Task:
    """A stub to be written: how it is called, what it says, and what it returns."""

    name: str
    signature: str
    result: str
    text: str
    sample: Callable[[Draw], tuple[Any, ...]]
    solve: Callable[..., Any]


def docstring_code(draw: Draw) -> tuple[str, ...]:
    """Return one stub to complete."""
    task = _exercise(draw) if draw.chance(0.65) else _composed(draw)
    request, afterword = draw.one(_REQUESTS), draw.one(_AFTERWORDS)
    return (f"{request}\n```python\n{_stub(draw, task)}```{afterword}",)


def _exercise(draw: Draw) -> _Task:
    exercise = draw.one(EXERCISES)
    constant = draw.number(*exercise.constants)
    return _Task(
        name=draw.one(exercise.names.split("|")),
        signature=exercise.signature,
        result=exercise.result,
        text=fill(exercise.task, draw, {}, k=str(constant)),
        sample=exercise.sample,
        solve=lambda *arguments: exercise.solve(constant, *arguments),
    )


def _composed(draw: Draw) -> _Task:
    wanted = operation(draw)
    family = wanted.family
    keep, change, gather = wanted.sentences
    text = draw.one(_OPENINGS).format(words=family.words, keep=keep, change=change, gather=gather)
    return _Task(
        name=draw.one(_LEADS) + (wanted.name or "copy"),
        signature=f"{family.argument}: {family.type_name}",
        result=wanted.result_type,
        text=text,
        sample=lambda draw: (family.sample(draw),),
        solve=wanted.apply,
    )


def _stub(draw: Draw, task: _Task) -> str:
    signature, result = task.signature, f" -> {task.result}"
    if draw.chance(0.4):
        result = ""
    if draw.chance(0.25):
        signature = ", ".join(part.split(":")[0] for part in signature.split(", ") if ":" in part)
    is_modern = draw.chance(0.4)
    if is_modern:
        for name in ("List", "Dict", "Tuple"):
            signature, result = (
                text.replace(f"{name}[", f"{name.lower()}[") for text in (signature, result)
            )
    names = [name for name in ("Dict", "List", "Tuple") if f"{name}[" in signature + result]
    imports = f"from typing import {', '.join(names)}\n\n\n" if names else ""
    form, heading = draw.one(_EXAMPLES), draw.one(_HEADINGS)
    examples = "".join(_example(draw, task, form) for _ in range(draw.number(1, 4)))
    opening = draw.one(('"""', '""" ', '"""\n    '))
    gap = draw.one(("\n\n", "\n"))
    return (
        f"{imports}def {task.name}({signature}){result}:\n"
        f'    {opening}{task.text}{gap}{heading}{examples}    """\n'
    )


def _example(draw: Draw, task: _Task, form: str) -> str:
    arguments = task.sample(draw)
    call = f"{task.name}({', '.join(map(repr, arguments))})"
    return form.format(call=call, result=repr(task.solve(*arguments)))
