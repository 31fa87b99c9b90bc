"""Arithmetic word problems of everyday life: money, time, shares, rates, percentages, ages."""

import re

from dflash.train.prompts.draw import Draw
from dflash.train.prompts.endings import WORD_PROBLEM_ENDINGS
from dflash.train.prompts.template import fill, paragraphs, pools

# Not after the point of "Mr.".
_SENTENCE_START = re.compile(
    r"(?:^|(?<=[a-z0-9%][.?!] )|(?<=\n))(?<!Mr\. )(?<!Ms\. )(?<!Dr\. )[a-z]"
)

POOLS = pools("""
    name = Amara; Bilal; Chloe; Dmitri; Elif; Farid; Greta; Hassan; Imani; Jonas; Keiko; Luca;
        Marisol; Nadia; Omar; Priya; Quinn; Rosa; Stefan; Tamsin; Uma; Victor; Wanda; Xavier;
        Yara; Zane; Agnes; Bruno; Celeste; Dara; Emil; Fiona; Gustav; Hana; Ivo; Jasmine; Kofi;
        Lena; Mateo; Noor; Otto; Paloma; Rashid; Sanna; Theo; Ursula; Viola; Walter; Ximena;
        Yusuf; Zofia; Aiko; Boris; Carmen; Declan; Esther; Felix; Gita; Hugo; Ingrid; Jamal; Kira;
        Leon; Mina; Nils; Olga; Pavel; Ravi; Sofia; Tariq; Una; Vera; Wes; Yoko; Mr. Okafor; Ms.
        Lindqvist; Grandma Ruth; Coach Alvarez; Dr. Singh
    item = notebooks; candles; marbles; stickers; light bulbs; scarves; mugs; tickets; seed
        packets; paintbrushes; batteries; postcards; towels; tennis balls; hammers; storybooks;
        picture frames; plant pots; keyrings; lanterns; badges; bricks; buttons; cushions; glass
        jars; puzzle boxes; ribbons; toy cars; umbrellas; wooden spoons; bars of soap; calendars;
        bicycle bells; headbands; envelopes; pencil cases; balloons; posters; gift cards; flower
        bulbs
    food = apples; muffins; loaves of bread; bagels; oranges; jars of honey; pies; sandwiches;
        cups of tea; bowls of soup; melons; cartons of eggs; pancakes; bottles of juice;
        pineapples; cookies; peaches; tacos; dumplings; wraps; cheese rolls; salads; bags of rice;
        tins of beans; plums; cupcakes; mangoes
    animal = goats; hens; horses; sheep; rabbits; cows; ponies; turkeys; geese; alpacas; pigs;
        beehives; llamas; donkeys; parrots; kittens
    place = a bakery; a garden centre; a bookshop; a toy shop; a hardware store; a café; a street
        market; a stationery shop; a charity shop; a corner shop; a fair; an online store; a farm
        stand; a gift shop; a supermarket; a sports shop
    job = a gardener; a tutor; a plumber; a dog walker; a courier; a painter; a barista; a house
        cleaner; a mechanic; a tailor; a babysitter; a carpenter; a waiter; a piano teacher; a
        lifeguard; a translator; a photographer; an electrician
    group = class; choir; football team; book club; scout troop; orchestra; summer camp; office;
        hiking club; drama group; chess club; swimming squad; dance school
    project = knitting a blanket; painting a fence; reading a long novel; building a model ship;
        sewing costumes; writing a report; digging a pond; sorting old photographs; learning a
        list of words; planting a hedge; laying a stone path; tiling a bathroom
    vehicle = car; bus; van; motorbike; train; truck; ferry; bicycle; tram
    liquid = water; lemonade; paint; milk; olive oil; orange juice; petrol; syrup
    day = Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday
    month = January; March; April; June; August; September; November
    goal = a new bicycle; a guitar; a camera; a school trip; a tent; a telescope; a drum kit; a
        sewing machine; a skateboard; a laptop; a pair of skis
    pct = 5; 10; 15; 20; 25; 30; 40; 50; 60; 75
    part = half; a third; a quarter; a fifth; two thirds; three quarters
    times = twice; three times; four times; five times
""")

_STORIES = paragraphs("""
    {name} [buys|picks up|orders] {a=2-12} {item} [at|from] {place}, each costing ${p=2-15}, and
    {b=2-9} {item2} for ${q=3-25} [each|apiece]. [{name} pays with a ${c=3-6}00 note.|At the till
    a voucher takes ${d=2-9} off the bill.] [How much change should {name} get?|What is left of
    the money, if {name} started with ${e=300-700/50}?]

    [At {place}|In {place}], {item} cost ${p=2-20} each. [On {day}|During a sale] the price drops
    by {pct}%. {name} needs {n=4-40/4} of them. [How much does {name} pay in all?|How much cheaper
    is this than buying them at the full price?]

    {name} works as {job} and [earns|charges|is paid] ${w=11-45} an hour. [Last week|In one week],
    {name} worked {a=3-9} hours a day for {d=3-6} days, and [spent ${s=20-90} on supplies|paid
    ${s=15-95} for transport|gave ${s=10-80} to a friend]. How much of the pay was left?

    {name} earns ${w=12-40} an hour for the first {h=30-40/5} hours of a week and {times} [that
    rate|as much per hour] for every hour after that. In [the first week of {month}|a busy week]
    {name} works {x=41-55} hours. What are the earnings of that week?

    {name} has {a=20-90} {item}. {name2} has {times} as many, and {name3} has {b=5-19} fewer than
    {name2}. [How many {item} do the three have together?|How many more {item} does {name3} have
    than {name}?]

    {name} is {a=4-12} years older than {name2}. [In {b=3-10} years|After another {b=3-10} years],
    the sum of their ages will be {c=50-90/2}. How old is {name} [now|today]?

    {name} is {times} as old as {name2}, who is {a=6-15}. {name3} is {b=2-9} years younger than
    {name}. What will {name3}'s age be in {c=4-20} years?

    A {vehicle} travels at {v=30-90/5} kilometres per hour for {a=2-5} hours and then at
    {w=20-80/5} kilometres per hour for {b=2-4} more. [How far does it go in total?|What is its
    average speed over the whole trip, in kilometres per hour?]

    {name} [drives|travels] {d=120-480/20} miles to see {name2}. The {vehicle} uses a gallon every
    {m=20-40/5} miles, and fuel is ${f=3-6} a gallon. {name} also pays ${t=4-18} in tolls each
    way. What does the round trip cost?

    {name} starts {project} on {day}. {name} [finishes|manages] {p=3-9}% of the work [each
    day|every day] for the first {d=4-8} days, then {q=2-6}% a day. [What share of the work is
    done after {e=10-14} days?|What percentage of the work is still left after {e=10-14} days?]

    {name} is {project}. It takes {name} {a=4-12} hours alone, and it would take {name2} {b=4-12}
    hours alone. [If they work together|Working side by side], how many minutes do they need?

    A {group} has {n=24-60/4} members. {pct}% of them [come by bus|stay for lunch|play an
    instrument|bring a snack], and {part} of the others [walk|stay at home|sing|bring a drink].
    How many members are in neither of these groups?

    The {group} is selling {food} to raise money. Each one sells for ${p=3-9} and costs ${c=1-2}
    to make. On {day} they sell {a=30-90}, and [on {day2}|the day after] {b=10-60} more than that.
    [What is their total profit?|How much more do they need to reach ${g=900-1800/100}?]

    {name} saves for {goal} that costs ${g=180-600/20}. {name} already has ${a=20-90} and [puts
    aside|saves] ${w=8-30} every week[, but spends ${x=2-6} of it on snacks|]. How many [full
    |]weeks will it take to have enough?

    {name} bakes {a=3-9} trays of {food}, {b=8-24} to a tray. {c=3-15} of them [burn|are
    dropped|come out too small], and the rest are packed into boxes of {d=4-6}. [How many boxes
    can be filled?|How many are left over once as many boxes as possible are filled?]

    {name} has a {l=12-40/2} metre by {w=6-20/2} metre garden. {part} of it is lawn, [{pct}% is
    taken up by a pond|{s=10-30} square metres are paved] and the rest is for flowers. [How many
    square metres are for flowers?|One bag of soil covers {k=3-6} square metres. How many bags are
    needed for the flower beds?]

    A tank holds {t=200-900/50} litres of {liquid}. A pipe fills it at {a=12-30} litres a minute,
    while a leak loses {b=2-8} litres a minute. [If it starts empty|Starting from {s=20-80/10}
    litres], how many minutes pass until it is full?

    {name} pours {a=4-20} litres of {liquid} into bottles of {b=2-8}00 millilitres. [After filling
    all the bottles it can|When no more full bottle can be made], {name} sells each bottle for
    ${p=2-7}. How much money does {name} make?

    [A farmer|{name}] keeps {a=12-60} {animal} and {times} as many {animal2}. Each of the {animal}
    eats {f=2-6} kilograms of feed a day, and each of the {animal2} {g=1-4} kilograms. [How much
    feed is needed for a week?|A sack of feed weighs {s=20-50/5} kilograms. How many sacks are
    used in {d=10-30/5} days?]

    {name} reads {a=12-40} pages [every evening|each morning] from Monday to Friday and {times} as
    many on each day of the weekend. The book has {n=400-900/20} pages. [How many pages are left
    after {w=1-2} weeks?|How many pages does {name} read in {w=2-4} weeks?]

    {a=3-6} friends share the cost of [a dinner|a boat trip|a birthday present|a holiday flat].
    The bill is ${t=120-480/12}, and they add a tip of {pct}%. {name} [pays ${x=5-20} more than an
    equal share|forgets the wallet, so the others split that share evenly]. How much does
    [{name}|each of the other friends] pay?

    {name} and {name2} collect {item}. {name} starts with {a=30-90} and gives {part} of them to
    {name2}, who started with {b=10-60}. Then {name2} loses {c=2-9}. [How many {item} does {name2}
    have in the end?|Who has more {item} now, and by how many?]

    A phone plan costs ${a=12-40} a month with {b=2-9}00 minutes. Every minute over that costs
    {c=5-25} cents. In {month}, {name} talked for {d=9-15}00 minutes. [What was the bill?|How much
    would {name} have saved with a flat plan at ${e=60-90/5} a month?]

    {name} invests ${a=1000-9000/500} at {r=2-9}% simple interest a year. [After {y=2-8} years|At
    the end of {y=2-8} years], {name} spends {part} of the interest on {goal}. How much money is
    left in total?

    The population of a [village|small town] was {a=20-90}00 in 2010. It grew by {pct}% by 2015
    and then fell by {b=1-4}00 people by 2020. What was the population in 2020?

    [In a car park|On a parking level] there are {n=60-200/20} spaces. At eight o'clock {pct}% of
    them are taken. In the next hour {a=5-20} vehicles leave and {times} as many arrive. How many
    spaces are free after that hour[, if the level never fills up|]?

    {name} mixes {a=2-6} parts of [red|blue|white] paint with {b=3-8} parts of [yellow|green|grey]
    to get {c=22-88/11} litres [of a new colour|for a wall]. How many litres of each does {name}
    need?

    The ratio of {item} to {item2} in a box is {a=2-5} to {b=6-9}. There are {n=60-240/12} things
    in the box, and {c=4-12} {item} are taken out. [How many {item} stay in the box?|What is the
    difference between the two kinds at the end, as near as whole numbers allow?]

    {name} runs {a=2-6} laps of a {l=3-8}00 metre track on {day}, {times} that on {day2}, and
    {b=2-5} laps fewer on {day3} than on {day2}. [How many kilometres is that in all?|At {m=5-8}
    minutes per kilometre, how many minutes does {name} run in all?]

    A recipe for {s=4-6} people needs {a=200-600/50} grams of flour, {b=2-5} eggs and
    {c=100-300/50} millilitres of milk. {name} is cooking for {n=10-30/2} guests. [How many grams
    of flour does {name} need?|Flour comes in bags of one kilogram. How many bags must {name}
    buy?]

    {name} has ${a=60-240/10} and spends {part} of it on {item} and then {part2} of what is left
    on {food}. [How much does {name} still have?|{name} then earns ${b=10-60} by selling {item2}.
    How much money is there now?]

    A [cinema|theatre] has {r=12-30} rows of {s=14-28} seats. Adult seats cost ${p=9-20} and
    children's seats ${c=4-8}. On {day}, {pct}% of the seats were empty and {part} of the others
    were taken by children. [How much money did it take, to the nearest dollar?|About how many
    adults came?]

    {name} plants {a=4-12} rows of {b=6-20} [tulips|cabbages|carrots|young trees|sunflowers].
    {pct}% of them do not come up, and {name2} [waters|picks] {part} of those that do. How many
    does {name2} leave, rounded to a whole number?

    {name} walks {a=2-6} kilometres to [work|school|the station] in {b=24-60/4} minutes and cycles
    back {times} as fast. How many minutes are spent on the way in a week of {d=4-6} days?

    Two [trains|boats|cyclists] start {d=120-480/20} kilometres apart and head towards each other,
    one at {v=30-70/5} and the other at {w=20-60/5} kilometres an hour. [The slower one waits
    {m=15-45/15} minutes before it sets off.|A bird flies back and forth between them at
    {u=80-100/5} kilometres an hour.] [After how many minutes do they meet?|How far from the start
    of the faster one do they meet?]

    A machine [fills|stamps|labels|folds] {a=20-90} {item} a minute. A newer one does {times} as
    many. Both run for {b=2-7} hours, but the old one stands still for {c=10-50/5} minutes. How
    many {item} are ready at the end?

    {name} [sells|has sold] {a=20-60} {item} for ${p=5-20} each and must give {pct}% of the
    takings to {place}. The material cost ${c=20-120/10}. [What is the profit?|How many {item}
    must {name} sell to earn at least ${g=300-900/50} after the fee and the material?]

    {name} is packing {item} into crates. A big crate holds {a=18-36/2}, a small one {b=6-12}.
    There are {n=150-400/10} {item}. {name} fills {c=3-5} big crates first. How many small crates
    are needed for the rest?

    [A library|A museum] lends {a=20-60} books on {day} and {pct}% more on {day2}. On {day3},
    {b=10-40} books come back. If it had {n=1000-4000/100} books on the shelves at first, how many
    are there now[, rounded to a whole book|]?

    {name} has {a=3-8} [bags|boxes|baskets] with {b=10-30} {food} in each. {name2} eats {c=2-6} a
    day for {d=5-12} days and {name} gives {e=10-30} to the {group}. How many {food} are left?

    The average of {name}'s marks in {a=3-5} tests is {b=60-80}. [What must {name} score in the
    next test to raise the average to {c=81-88}?|The next two marks are {d=80-99} and {e=50-99}.
    What is the average now?]

    The thermometer shows {a=12-30} degrees at noon on {day}. It falls by {b=2-4} degrees every
    [hour|two hours] until midnight, then rises by {c=1-3} degrees an hour. What does it show at
    {d=5-9} o'clock the next morning?

    {name} had some {item}. After giving {a=5-25} to {name2} and {part} of the remaining ones to
    {name3}, {name} had {b=12-48/12} left. How many {item} did {name} have at the start?

    {name} rents {goal} for ${a=6-20} a day plus a fee of ${b=10-40/5}. {name2} rents the same
    thing elsewhere for ${c=21-30} a day without a fee. After how many days does {name} pay less
    than {name2}?

    A rope of {a=40-120/4} metres is cut into pieces. {name} takes {b=2-5} pieces of {c=3-7}
    metres, {name2} takes {part} of what remains. [How long is the rest?|Into how many pieces of
    half a metre can the rest be cut?]

    In a quiz, each right answer brings {a=3-8} points and each wrong one loses {b=1-2}. {name}
    answers {n=20-40/5} questions and gets {pct}% of them right. [What is the score?|How many more
    points would {name} have had with {c=2-4} more right answers?]

    A bus leaves the depot with {a=12-40} passengers. At the first stop {b=3-9} get off and
    {c=5-14} get on. At the second, {part} of the passengers get off and {d=2-11} get on[. At the
    third, {e=2-9} more join|]. How many are on the bus now?

    {name} makes {a=2-6} bracelets a day and sells each for ${p=6-18}. The beads for one cost
    ${c=1-4}. In {month}, {name} works {d=15-24} days and sells all but {e=3-12} of the bracelets.
    What is the profit for the month?

    {name}'s house uses {a=9-20} units of electricity a day, at {c=15-40} cents a unit. [New
    lamps|Solar panels|A better fridge] would cut this by {pct}% and cost ${g=100-900/50}. After
    how many days has the change paid for itself?

    The {group} hires {a=2-6} coaches with {b=30-55} seats each for ${p=150-480/10} a coach.
    {c=60-90} people have signed up. [How much does each pay if the cost is shared equally, in
    dollars and cents?|How many seats stay empty?]

    {name} wakes at {a=5-7}:{m=10-55/5} and needs {b=15-45/5} minutes to get ready and {c=20-50/5}
    minutes for breakfast. The way to work takes {d=20-70/5} minutes. [At what time does {name}
    arrive?|Work begins at nine. How many minutes early or late is {name}?]

    {name} jogs for {a=20-50/5} minutes on weekdays and {times} that long on Saturdays. Each
    minute burns {c=7-12} calories. [How many calories is that in a week?|A slice of cake has
    {k=250-450/50} calories. How many whole slices make up for a week of running?]

    Of the {n=120-600/60} {item} in a warehouse, {part} are red and {pct}% of the remaining ones
    are blue. The others are green. [How many are green?|{name} ships {a=20-50/5} red ones. How
    many red ones remain?]

    A shop buys {item} at ${a=4-20} and marks them up by {pct}%. {name} has a loyalty card that
    takes {b=5-20/5}% off the shelf price. [What does {name} pay for {c=2-8} of them?|How much
    does the shop earn on {c=2-8} of them sold to {name}?]
""")

_SETTINGS = (
    *("",) * 6,
    "Here is a problem from daily life. ",
    "Help me with this one. ",
    "My daughter's homework asks the following. ",
    "Problem: ",
    "Question: ",
    "Solve this word problem. ",
    "I am stuck here. ",
)


def arithmetic(draw: Draw) -> tuple[str, ...]:
    """Return one word problem with the wish for worked steps."""
    story = fill(draw.one(_STORIES), draw, POOLS)
    story = _SENTENCE_START.sub(lambda match: match[0].upper(), story)
    return (draw.one(_SETTINGS) + story + draw.one(WORD_PROBLEM_ENDINGS),)
