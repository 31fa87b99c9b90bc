r"""Formal mathematics in LaTeX: algebra, functions, number theory, counting, geometry, calculus."""

from dflash.train.prompts.draw import Draw
from dflash.train.prompts.endings import FORMAL_ENDINGS
from dflash.train.prompts.template import fill, paragraphs, pools

POOLS = pools(r"""
    v = x; y; t; z; n
    f = f; g; h; p
    trig = \sin; \cos; \tan
    angle = \frac{\pi}{6}; \frac{\pi}{4}; \frac{\pi}{3}; \frac{2\pi}{3}; \frac{5\pi}{6}
    deg = 15; 30; 45; 60; 75; 105; 120; 135; 150
    pt = P; Q; R; S
    tri = ABC; PQR; XYZ; DEF
    prime = 7; 11; 13; 17; 19; 23
    word = BANANA; LETTER; COFFEE; PEPPER; BALLOON; TEXTBOOK; RIVER; PARALLEL; SUCCESS; GEOMETRY;
        ALGEBRA; NUMBER; ASSESS; COMMITTEE; MIRROR
    thing = books; children; flags; cards; tiles; runners; songs; beads
    colour = red; blue; green; white; black; yellow
""")

_PROBLEMS = paragraphs(r"""
    [Solve|Find all real solutions of] the equation ${a=2-9}{v} + {b=3-30} = {c=31-90}$[.| for
    ${v}$.]

    [Find|Determine] all real numbers ${v}$ [such that|with] ${v}^2 - {a=3-15}{v} + {b=2-50} = 0$.

    [What is|Compute] the sum of the squares of the roots of ${a=1-5}{v}^2 + {b=6-20}{v} -
    {c=1-30}$?

    Let ${f}(x) = {a=2-9}x^2 - {b=2-12}x + {c=1-20}$. [Find|What is] ${f}({d=2-6}) -
    {f}(-{e=1-5})$[.|, as an integer?]

    The function ${f}$ is defined by ${f}(x) = \frac{{a=2-9}x + {b=1-9}}{x - {c=2-8}}$. [Find
    ${f}^{-1}(x)$.|For which $x$ is ${f}(x) = {d=10-20}$?|What is the horizontal asymptote of its
    graph?]

    If ${f}(x) = {a=2-7}x - {b=1-9}$ and $q(x) = x^2 + {c=1-9}$, [evaluate ${f}(q({d=1-5}))$.|find
    all $x$ with ${f}(q(x)) = q({f}(x))$.|what is $q({f}({d=1-5}))$?]

    [Expand|Multiply out] $({a=2-7}{v} - {b=1-9})({c=1-6}{v}^2 + {d=1-9}{v} - {e=1-9})$ and
    [collect like terms|state the coefficient of ${v}^2$].

    Factor ${v}^2 {sign} {a=2-9}{v} - {b=10-60}$ [over the real numbers|completely, if possible].

    [Simplify|Write as a single fraction] $\frac{{a=2-9}}{{v} + {b=1-5}} - \frac{{c=2-9}}{{v} -
    {d=1-5}}$.

    Solve the system \[\begin{aligned} {a=2-7}x + {b=2-9}y &= {c=10-60}, \\ {d=2-7}x - {e=1-9}y &=
    {g=1-30}. \end{aligned}\]

    Find the [distance between|midpoint of the segment between] the points $({a=1-9}, {b=1-9})$
    and $(-{c=1-9}, {d=10-20})$.

    A line passes through $({a=1-9}, -{b=1-9})$ and has slope $\frac{{c=1-7}}{{d=2-9}}$. [Where
    does it meet the $y$-axis?|Find its equation in the form $ax + by = c$ with integers $a$, $b$,
    $c$.]

    Find the [centre and radius|area] of the circle $x^2 + y^2 - {a=2-12/2}x + {b=2-16/2}y =
    {c=1-40}$.

    In triangle ${tri}$, two sides have lengths ${a=5-15}$ and ${b=6-20}$, and the angle between
    them is ${deg}^\circ$. [Find the third side.|What is the area of the triangle?]

    A right triangle has legs ${a=3-20}$ and ${b=4-24}$. [Find the radius of its inscribed
    circle.|What is the length of the altitude to the hypotenuse?|Find the median to the
    hypotenuse.]

    [The diagonals of a rhombus are|A kite has diagonals of lengths] ${a=6-20/2}$ and
    ${b=8-30/2}$. [What is its area?|Find its area and, if it is fixed, its perimeter.]

    A regular polygon has ${n=5-24}$ sides. [Find the size of each interior angle, in degrees.|How
    many diagonals does it have?]

    A cone has base radius ${a=2-12}$ and height ${b=3-20}$. [Find its volume in terms of
    $\pi$.|What is its slant height?|A plane parallel to the base cuts it halfway up. What is the
    volume of the lower part?]

    A sphere is inscribed in a cube with edges of length ${a=4-24/2}$. Find the ratio of [their
    volumes|the surface of the sphere to that of the cube].

    How many positive divisors does ${n=60-720/12}$ have[?| that are even?| that are multiples of
    ${k=2-6}$?]

    Find the [greatest common divisor|least common multiple] of ${a=24-180/6}$ and
    ${b=30-210/10}$.

    What is the remainder when ${a=2-9}^{{b=10-99}}$ is divided by ${prime}$?

    Find the last [digit|two digits] of ${a=3-9}^{{b=20-120}}$.

    [Find|What is] the smallest positive integer $n$ such that ${a=3-9}n \equiv {b=1-6}
    \pmod{{prime}}$[.|, if there is one?]

    Convert the base-{a=3-9} number with digits [$1202$|$2110$|$1021$|$2012$] to base ten[.| and
    then to base two.]

    How many integers between ${a=10-90/10}$ and ${b=200-900/50}$ are divisible by ${c=3-9}$ [but
    not by ${d=4-11}$|and by ${d=4-11}$]?

    In how many ways can the letters of the word {word} be arranged[?| so that the first letter is
    fixed?| with no two equal letters side by side?]

    In how many ways can ${a=3-5}$ {thing} be chosen from ${b=7-14}$ [different ones|if the order
    matters|if one of them must be taken]?

    How many [ways are there to seat|seatings are there for] ${n=5-9}$ people around a round table
    if [two of them must sit together|two of them refuse to sit together|rotations count as the
    same]?

    [Find|What is] the coefficient of $x^{k=2-5}$ in the expansion of $({a=1-4}x +
    {b=1-5})^{{n=6-9}}$[.|?]

    A fair die is rolled {n=2-4} times. What is the probability that [the sum is {s=7-12}|every
    roll is at least {m=2-5}|no two rolls are equal]? [Give a reduced fraction.|]

    A bag holds ${a=3-9}$ {colour} and ${b=4-12}$ {colour2} {thing}. Two are drawn [without
    replacement|with replacement]. Find the probability that [both are {colour}|they differ in
    colour|at least one is {colour2}].

    A coin lands heads with probability $\frac{1}{{a=2-5}}$. It is tossed ${n=3-6}$ times. [What
    is the probability of exactly ${k=1-3}$ heads?|Find the expected number of heads.]

    The first term of an arithmetic sequence is ${a=2-20}$ and its [fifth|seventh|tenth] term is
    ${b=30-90}$. [Find the common difference.|What is the sum of its first ${n=12-40}$ terms?]

    A geometric series has first term ${a=2-12}$ and ratio $\frac{1}{{b=2-6}}$. [Find its infinite
    sum.|What is the sum of the first {n=3-6} terms?]

    Evaluate the sum \[\sum_{k={a=1-3}}^{{b=10-40}} ({c=2-6}k - {d=1-9}).\]

    Evaluate \[\sum_{k=1}^{{n=5-50}} \frac{1}{k(k+{a=1-3})}.\]

    A sequence is given by $a_1 = {a=1-6}$ and $a_{n+1} = {b=2-4}a_n - {c=1-5}$ for $n \ge 1$.
    Find $a_{n=4-7}$.

    [Compute|Evaluate] $\log_{a=2-5} {b=2-9} + \log_{a} {c=10-40}$ as one logarithm[ and
    approximate it|].

    Solve for $x$: $\log_{a=2-5}(x - {b=1-9}) = {c=1-4}$.

    Solve ${a=2-7}^{x+{b=1-4}} = {c=8-9}^{{d=2-5}}$ for $x$.

    Evaluate ${trig}\left({angle}\right) {sign} {a=2-5}{trig2}\left({angle2}\right)$[ exactly|].

    Find all angles $\theta$ with $0 \le \theta < 2\pi$ and $2{trig}\theta =
    [1|\sqrt{3}|-1|\sqrt{2}]$.

    Write the complex number $\frac{{a=1-9} + {b=1-9}i}{{c=1-6} - {d=1-7}i}$ in the form $p + qi$.

    Find the modulus [and argument |]of $z = {a=1-12} - {b=1-12}i$[, and compute $z^2$|].

    Let $\mathbf{u} = ({a=1-9}, {b=1-9}, -{c=1-9})$ and $\mathbf{w} = ({d=1-9}, -{e=1-9},
    {g=1-9})$. Find [$\mathbf{u} \cdot \mathbf{w}$|$\mathbf{u} \times \mathbf{w}$|the cosine of
    the angle between them].

    Find the [determinant|inverse|eigenvalues] of $\begin{pmatrix} {a=1-9} & {b=1-9} \\ {c=1-9} &
    {d=1-9} \end{pmatrix}$.

    Differentiate ${f}(x) = {a=2-7}x^{b=3-6} - {c=2-9}x^2 + {d=1-9}$ and find the slope of its
    graph at $x = {e=1-4}$.

    Evaluate $\int_{0}^{{a=1-6}} ({b=3-9}x^2 + {c=2-8}x)\,dx$.

    Find the [maximum|minimum] value of ${f}(x) = [-|]{a=1-5}x^2 + {b=2-24/2}x - {c=1-20}$ [for $0
    \le x \le {d=5-12}$|for real $x$], or show that there is none.

    For what values of $k$ does $x^2 + kx + {a=4-49} = 0$ have [two equal roots|no real roots|two
    distinct positive roots]?

    Solve the inequality $|{a=2-6}x - {b=1-20}| [<|>|\le] {c=3-30}$ and write the solution as [an
    interval|a union of intervals].

    How many integers satisfy ${a=1-9} < {b=2-6}x - {c=1-9} \le {d=30-90}$?

    If $a + b = {s=6-20}$ and $ab = {m=3-40}$, find [$a^2 + b^2$|$a^3 + b^3$|$\frac{1}{a} +
    \frac{1}{b}$].

    Let $a$ and $b$ be positive numbers with $a + b = {s=4-30/2}$. What is the largest possible
    value of [$ab$|$a^2 b$|$\sqrt{a} + \sqrt{b}$]?

    When the polynomial $x^3 + {a=1-9}x^2 - {b=1-12}x + {c=1-20}$ is divided by $x - {d=1-5}$,
    what is the remainder?

    Find the sum of all [primes|perfect squares|multiples of {k=3-9}] [below|less than]
    ${n=30-150/10}$.

    Rationalise the denominator of $\frac{{a=1-12}}{\sqrt{{b=5-19}} - \sqrt{{c=2-4}}}$.

    Simplify $\sqrt{{a=12-200/4}} + \sqrt{{b=18-300/6}}$.

    The operation $\star$ is defined by $a \star b = {a=2-5}a - {b=1-4}b + ab$. [Find $({c=1-9}
    \star {d=1-9}) \star {e=1-9}$.|For which $x$ is $x \star {c=1-9} = {d=10-40}$?]

    Point ${pt}$ is [reflected in the line $y = x$|rotated by $90^\circ$ about the origin] and
    then shifted by $({a=1-9}, -{b=1-9})$, and lands on $({c=1-9}, {d=1-9})$. Find the coordinates
    of ${pt}$ at the start.

    [Prove|Show] that for every positive integer $n$, [$n^3 - n$ is divisible by $6$|the sum of
    the first $n$ odd numbers is $n^2$|$n^2 + n + {a=3-99/2}$ is odd|$1 + 2 + \dots + n =
    \frac{n(n+1)}{2}$].

    Two chords of a circle meet inside it. One is cut into parts of lengths ${a=2-9}$ and
    ${b=4-12}$, and one part of the other has length ${c=3-12}$. How long is the [other part|whole
    second chord]?

    An ellipse has equation $\frac{x^2}{{a=16-81}} + \frac{y^2}{{b=4-15}} = 1$. Find [its foci|the
    distance between its foci|its eccentricity|its area].

    Find the point on the [parabola $y = x^2 + {a=1-9}$|line $y = {b=2-7}x - {c=1-9}$] closest to
    [the origin|$({d=1-9}, 0)$].

    Express $0.\overline{{n=12-98}}$ as a fraction in lowest terms[.| and add $\frac{1}{{a=3-9}}$
    to it.]

    Let $\lfloor x \rfloor$ denote the greatest integer not above $x$. Compute $\lfloor
    \sqrt{{a=20-400}} \rfloor + \lfloor -{b=1-9}.{c=1-9} \rfloor$.
""")


def formal_maths(draw: Draw) -> tuple[str, ...]:
    """Return one problem with the wish for a derivation."""
    problem = fill(draw.one(_PROBLEMS), draw, POOLS, sign=draw.one("+-"))
    return (problem.strip() + draw.one(FORMAL_ENDINGS),)
