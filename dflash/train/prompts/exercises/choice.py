"""Every exercise there is."""

from dflash.train.prompts.exercises.lists import LISTS
from dflash.train.prompts.exercises.numbers import NUMBERS
from dflash.train.prompts.exercises.tables import TABLES
from dflash.train.prompts.exercises.texts import TEXTS

EXERCISES = (*LISTS, *NUMBERS, *TEXTS, *TABLES)
