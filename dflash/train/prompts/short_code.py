"""One-sentence requests for a small function or program."""

from dflash.train.prompts.draw import Draw
from dflash.train.prompts.exercises.choice import EXERCISES
from dflash.train.prompts.operations.operation import operation
from dflash.train.prompts.template import fill, paragraphs, pools

POOLS = pools("""
    language = Python; Python; Python; Python; Python; JavaScript; Java; C; Go; Rust; Bash; SQL
    seq = list; tuple; queue; array; linked list; sequence of numbers
    shape = cylinder; cone; trapezium; ellipse; regular hexagon; sphere; pyramid; rhombus; torus;
        circle sector; parallelogram; cuboid
    measure = area; volume; surface area; perimeter; longest diagonal
    series = Fibonacci; Lucas; triangular; square; pentagonal; Catalan; prime; harmonic; Pell;
        factorial; tribonacci; perfect
    sort = bubble sort; insertion sort; merge sort; quicksort; heap sort; counting sort; selection
        sort; shell sort; radix sort
    structure = stack; queue; binary search tree; hash map; linked list; heap; graph; trie; ring
        buffer; LRU cache; deque; matrix; bank account; shopping cart; playing card; fraction;
        timer; polynomial; bounded counter
    formata = JSON; CSV; YAML; a log file; an INI file; Markdown; plain text; XML
    unit = Celsius to Fahrenheit; miles to kilometres; pounds to kilograms; seconds to hours,
        minutes and seconds; degrees to radians; bytes to a readable size; Roman numerals to
        integers; hexadecimal colours to red, green and blue values; inches to feet and inches;
        integers to Roman numerals
    thing = email address; date in the form YYYY-MM-DD; phone number; postcode; IPv4 address; time
        such as 23:59; password; hexadecimal number; user name; credit card number; URL;
        floating-point number
    char = spaces; punctuation marks; vowels; digits; line breaks; duplicate characters; HTML
        tags; leading zeros
    stat = mean; median; mode; standard deviation; range; running total; geometric mean; moving
        average over three values; interquartile range; weighted average
    game = tic-tac-toe; hangman; rock, paper, scissors; a number guessing game; blackjack; a dice
        game; snake; a memory game; Conway's game of life; a word quiz
""")

_REQUESTS = paragraphs("""
    Write a {language} function that [returns|computes] the {measure} of a {shape} from its
    dimensions.

    Write a {language} function that [returns|prints] the first n {series} numbers.

    Write a function that checks whether a number is a {series} number.

    Implement {sort} in {language}[.| and explain its running time.| with comments.]

    Write a {language} class for a {structure} with [methods to add, remove and look up|a
    constructor, two methods and an example].

    How do I read {formata} in {language}? Give a [short|complete] example.

    Write a {language} script that converts {formata} into {formata2}.

    Write a {language} function that converts {unit}.

    Write a [function|regular expression] that checks whether a string is a valid {thing}.

    Write a {language} function that removes all {char} from a string.

    Write a function that counts the {char} in each line of a file.

    Write a {language} function that computes the {stat} of a list of numbers[ without any
    library|].

    Write a small {language} program that plays {game} in the terminal.

    Write a function to rotate a {seq} by k places to the [left|right].

    Write a function to split a {seq} into [chunks of size n|runs of equal elements|two parts of
    nearly equal sum].

    Write a function to merge two sorted {seq}s.

    Write a function to find the [second largest|k-th smallest|most frequent|least frequent]
    element of a {seq}.

    Write a function to [flatten a nested list|transpose a matrix|multiply two matrices|sum the
    diagonal of a square matrix|rotate a square grid by 90 degrees].

    Write a function that tells whether two strings are [anagrams|rotations of each other|equal if
    case is ignored|one edit apart].

    Write a recursive function that [computes the factorial of n|lists all subsets of a set|lists
    all permutations of a string|solves the Towers of Hanoi|finds the greatest common
    divisor|computes a power].

    Write a function that returns the [number of set bits|next power of two|binary
    reversal|parity] of an integer.

    Write a function that finds [the longest common prefix of several strings|the longest
    palindrome inside a string|the longest run of equal characters|the longest word of a
    sentence|the longest increasing subsequence].

    Write a function that takes a dictionary and [inverts it|sorts it by value|drops keys whose
    value is None|merges it with another one, adding values|returns the key with the largest
    value].

    Write a SQL query that [lists the ten customers with the most orders|joins orders with
    customers|counts rows per month|finds duplicate email addresses|returns the second highest
    salary].

    Write a {language} function that [waits and retries a failing call|caches its results|measures
    how long another function takes|logs every call|validates its arguments].

    Write a generator that yields [prime numbers|the lines of a file without comments|a running
    maximum|numbers that are divisible by both a and b|the Collatz sequence of n].

    Write a function that works out [the day of the week of a date|the number of days between two
    dates|whether a year is a leap year|someone's age from the date of birth|the next business
    day].

    Write unit tests for a function that [adds two fractions|parses a date|reverses a list in
    place|checks for palindromes|sorts names].

    Find [the bug|what is wrong] in this line and fix it: `for i in range(len(xs)):
    xs.remove(xs[i])`. The list is a list of {thing}s.

    Explain what a {structure} is and write one in {language}.

    Write a {language} program that [prints a multiplication table|draws a triangle of
    stars|simulates a queue at a till|counts words in a text|prints a calendar for a month|plays
    FizzBuzz with the numbers {a=2-5} and {b=6-9}].

    Write a function that adds up all [multiples of {a=2-9}|numbers with digit {a=1-9} in
    them|proper divisors of n|squares] [below n|between two bounds].

    Given a list of {thing}s, write {language} code that [groups them by first character|removes
    duplicates but keeps order|counts each one|sorts them by length].
""")
_SENTENCES = paragraphs("""
    Write a function that takes {words}, {keep}, {change} and {gather}.

    Write a Python function which, given {words}, {keep}, {change} and {gather}.

    I need a function over {words}. It {keep}, {change}, and {gather}.

    Create a function that {keep} of {words}, {change} and {gather}.
""")
_TASKS = paragraphs("""
    Write a function of {arguments} for this: {task}

    Write a Python function with the parameters {arguments}. {task}

    {task} Write this as a function of {arguments}.

    I have {arguments}. {task} How would the function look?

    Code this in Python, as a function that takes {arguments}: {task}
""")
_AFTERWORDS = (
    "",
    "",
    "",
    "",
    " Show one example call.",
    " Include type hints.",
    " Keep it short.",
    " Then test it with a few asserts.",
    " Explain the idea in one sentence.",
)


def short_code(draw: Draw) -> tuple[str, ...]:
    """Return one request of a sentence or two."""
    style = draw.number(1, 20)
    if style <= 6:
        exercise = draw.one(EXERCISES)
        constant = str(draw.number(*exercise.constants))
        task = fill(exercise.task, draw, {}, k=constant)
        arguments = [part.split(":")[0] for part in exercise.signature.split(", ") if ":" in part]
        text = draw.one(_TASKS).format(arguments=" and ".join(arguments), task=task)
    elif style <= 10:
        wanted = operation(draw)
        keep, change, gather = wanted.sentences
        text = draw.one(_SENTENCES).format(
            words=wanted.family.words, keep=keep, change=change, gather=gather
        )
        if draw.chance(0.4):
            value = wanted.family.sample(draw)
            text += f" For {value!r} the result should be {wanted.apply(value)!r}."
    else:
        text = fill(draw.one(_REQUESTS), draw, POOLS)
    return (text + draw.one(_AFTERWORDS),)
