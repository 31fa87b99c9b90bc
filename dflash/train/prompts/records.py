"""Small texts full of facts, for extraction: notes, orders, notices, biographies, reviews."""

from dflash.train.prompts.draw import Draw
from dflash.train.prompts.template import fill, paragraphs, pools

POOLS = pools("""
    first = Aaron; Beatriz; Cedric; Deepa; Elena; Finn; Gloria; Henrik; Isla; Jorge; Katya; Liam;
        Maya; Nikolai; Oona; Pedro; Rania; Samuel; Tessa; Umar; Violet; Wouter; Xenia; Yannick;
        Zelda
    last = Abbott; Bianchi; Castillo; Dahl; Eriksen; Fontaine; Gupta; Hoffmann; Ivanov; Jensen;
        Kimura; Larsen; Moreau; Nakamura; Osei; Petrov; Quist; Rossi; Schmidt; Tanaka; Vargas;
        Weber; Yilmaz; Zhang
    city = Lisbon; Oslo; Toronto; Nairobi; Osaka; Lyon; Dublin; Santiago; Krakow; Perth; Cairo;
        Denver; Ghent; Tallinn; Bogota; Hanoi; Leeds; Turin; Bergen; Porto
    month = January; February; March; April; May; June; July; August; September; October;
        November; December
    weekday = Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday
    job = architect; nurse; marine biologist; violinist; software engineer; baker; historian;
        pilot; chemist; novelist; carpenter; judge; teacher; botanist
    product = desk lamp; water bottle; rain jacket; coffee grinder; keyboard; hiking boot; vacuum
        cleaner; travel pillow; frying pan; bicycle light; backpack; headset
    adjective = sturdy; noisy; light; overpriced; reliable; comfortable; flimsy; handsome;
        practical; disappointing; clever
    company = Northwind Paper; Bluebell Foods; Harbour Tools; Silver Pine Energy; Orchard
        Software; Kestrel Logistics; Marigold Textiles; Granite Insurance
    event = a pottery workshop; a choir concert; a spring market; a charity run; an open day; a
        lecture on bees; a film evening; a repair café; a book fair
    place = the town hall; the old library; Riverside Park; the school gym; the harbour; Mill
        Street 14; the community centre; the botanical garden
    dish = lentil stew; mushroom risotto; apple crumble; fish soup; vegetable curry; onion tart;
        pumpkin bread; bean salad
""") | pools(
    "animal = heron; badger; red squirrel; otter; barn owl; hedgehog; kingfisher; "
    "fallow deer"  # codespell:ignore fallow
)

_RECORDS = paragraphs("""
    {first} {last}, born in {city} in {n=1935-1998}, worked as {job} for {m=5-30} years before
    moving to {citya}. In {year=2000-2022}, {first} founded {company}, which now has {k=12-900}
    employees.

    Minutes of {weekday}, {d=1-28} {month}: {first} reported that sales rose by {n=2-19}%.
    {firsta} will call the supplier in {city} by {weekdaya}. {firstb} asked for {m=2-9} new
    computers. The next meeting is at {h=9-16}:30 in room {r=100-320}.

    Order {n=10000-99999}: {a=1-9} x {product} at {p=8-90}.50 each, {b=1-5} x {producta} at
    {q=5-60}.00 each. Ship to {first} {last}, {s=1-120} Garden Road, {city}. Delivery is due on
    {d=1-28} {month}.

    The city of {city} announced {event} on {weekday}, {d=1-28} {month}, at {place}. Doors open at
    {h=8-18}:00 and tickets cost {p=3-25} euros. Children under {k=6-14} get in free. Questions go
    to {first} {last}.

    I bought this {product} in {month} for {p=15-190} dollars. It is {adjective} and {adjectivea},
    but after {n=2-11} weeks the {part} broke. {company} sent a new one within {d=2-14} days. I
    give it {s=1-5} stars out of five.

    On {weekday} morning {first} saw {a=2-9} of the rare {animal} near {city}, and {firsta}
    counted {b=3-20} more in the afternoon. In {year=1990-2015} there were only {c=1-4} left in
    the region, says {firstb} {last}, a {job}.

    Dear {first}, I will arrive in {city} on {d=1-28} {month} with flight {code} at {h=6-22}:15
    and stay for {n=2-9} nights. Could you book a table for {m=2-8} on {weekday}? My number is
    555-{t=1000-9999}. Best wishes, {firsta}

    {company} of {city} earned {n=12-480} million euros in {year=2015-2024}, up from {m=5-400}
    million the year before. Its head, {first} {last}, a former {job}, plans a factory in {citya}
    with {k=50-800} jobs by {yeara=2026-2032}.

    For {dish} you need {a=200-800/50} grams of the main ingredient, {b=1-4} onions, {c=1-5}
    spoons of oil and {d=2-9} cloves of garlic. Chop for {e=5-15} minutes, cook for {f=20-60/5},
    and serve {g=2-8} people. It keeps for {h=2-4} days.

    Weather for {city}: {weekday} {a=2-30} degrees and {skya}, {weekdaya} {b=2-30} degrees and
    {skyb}, {weekdayb} {c=2-30} degrees with wind from the {wind}. In {citya} it stays {skyc} all
    week.

    {first} ({n=8-14}), {firsta} ({m=8-14}) and {firstb} ({k=8-14}) entered the school's race.
    {firsta} won in {s=12-15}.{t=10-99} seconds, {first} came second, {u=1-9} tenths behind, and
    {firstb}, who fell, was last. The prize was a {product}.

    Support ticket {n=1000-9999}, opened {d=1-28} {month} by {first} {last}: the {product} does
    not switch on. Tried: new batteries, another cable. Serial number {code}-{m=100-999}.
    Priority: {priority}. Assigned to {firsta}.
""")
_EXTRA = pools("""
    part = handle; zip; switch; lid; strap; screen
    sky = sunny; cloudy; rainy; foggy; dry
    wind = north; south; west; east; north-west
    priority = low; normal; high; urgent
    code = KX417; BT208; LM932; QA655; DV181; RS374; WN260
""")


def record(draw: Draw) -> str:
    """Return one text of two to four sentences."""
    pools = POOLS | _EXTRA
    letters = {
        pool + letter: draw.one(pools[pool])
        for pool in ("first", "city", "weekday", "product", "adjective", "sky")
        for letter in "abc"
    }
    return fill(draw.one(_RECORDS), draw, pools, **letters)
