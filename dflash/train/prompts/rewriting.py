"""Rewriting and summarising a given passage."""

from dflash.train.prompts.draw import Draw
from dflash.train.prompts.records import record
from dflash.train.prompts.template import fill, pools, weighted_paragraphs

POOLS = pools("""
    style = a formal style; plain English; a friendly tone; the style of a newspaper; the style of
        a fairy tale; short sentences; the past tense; the first person; an enthusiastic tone; the
        form of a question and an answer; the passive voice; rhyming lines; the words of a child;
        a list of bullet points
    length = one sentence; two sentences; at most twenty words; three bullet points; a headline; a
        tweet; half its length
    language = French; Spanish; German; Italian; Portuguese
""")

_REQUESTS = weighted_paragraphs("""
    4 Summarise the following text in {length}.

    4 Rewrite this passage in {style}.

    2 Shorten this text to {length}, keeping its meaning.

    2 Paraphrase the passage below[.| without using any of its nouns.| for a general reader.]

    1.5 What is the main point of this passage?

    1.5 Correct any mistakes in this text and [improve its flow|explain your changes].

    1 Translate this text into {language}.

    1.5 Explain this passage to someone who knows nothing about the subject.

    1 Expand this text into [two paragraphs|a short article|a longer explanation with an example].

    1 Give this passage a title and [a summary of one line|three keywords].

    1 Continue the text below with two more sentences.

    1.5 Turn the text into [an email|a poem|a dialogue|a set of instructions|a quiz question].

    1 Repeat the text word for word, but [in capital letters|with each sentence on its own
    line|with numbered sentences].
""")


def rewriting(draw: Draw) -> tuple[str, ...]:
    """Return a passage with a request before or after it."""
    passage = record(draw) if draw.chance(0.35) else draw.passage()
    request = fill(draw.weighted(_REQUESTS), draw, POOLS)
    text = draw.one((
        f"{request}\n\n{passage}", f"{request}\n\"{passage}\"", f"{passage}\n\n{request}",
        f"Text: {passage}\n\n{request}", f"{request}\n\n---\n{passage}\n---",
    ))  # fmt: skip
    return (text,)
