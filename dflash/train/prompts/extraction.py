"""Drawing facts out of a given text: JSON, lists, tables, answers."""

from dflash.train.prompts.draw import Draw
from dflash.train.prompts.records import record
from dflash.train.prompts.template import fill, paragraphs, pools, weighted_paragraphs

POOLS = pools("""
    field = names; numbers; dates and times; places; people; organisations; prices; things;
        actions
""")
_REQUESTS = weighted_paragraphs("""
    4 Extract the {field} and {field2} from this text as JSON.

    2 List all {field} mentioned in the text.

    2 Make a table [with the columns {field} and {field2}|of the facts] from the following text.

    3 Return a JSON object with the keys [who, where and when|name, place and number|subject, date
    and amount] for this text. [Use null for what is missing.|]

    2 Answer from the text only: [who is mentioned first?|which number is the largest?|what
    happens last?|where does it take place?|what is still unknown?]

    2 Write the facts in this text as [a numbered list|key: value lines|YAML|CSV with a header
    line].

    1 How many {field} does the text below mention? [Name them.|Quote each.]

    1 Which of these are in the text: {field}, {field2}, {field3}? Give [an example of each|yes or
    no for each].
""")
_ABOUT_PROSE = paragraphs("""
    List the key terms of this passage and explain each in a few words.

    Which claims does this passage make? Number them.

    Return a JSON list of the nouns in this passage.

    Write three questions that this passage answers, with the answers.

    Extract every condition (if, when, unless) from this passage as a list.

    Fill in JSON with the keys topic, purpose and warnings from this passage.
""")


def extraction(draw: Draw) -> tuple[str, ...]:
    """Return a text with a request for what is in it."""
    if draw.chance(0.25):
        return (f"{draw.one(_ABOUT_PROSE)}\n\n{draw.passage()}",)
    request, text = fill(draw.weighted(_REQUESTS), draw, POOLS), record(draw)
    return (draw.one((f"{request}\n\n{text}", f"{text}\n\n{request}", f"{request}\nText: {text}")),)
