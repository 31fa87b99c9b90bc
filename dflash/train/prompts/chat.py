"""Open chat: writing, roleplay, explanations, advice, reasoning, lists; a third with a sequel."""

from dflash.train.prompts.draw import Draw
from dflash.train.prompts.template import fill, paragraphs, pools, weighted_paragraphs

POOLS = pools("""
    reader = a ten-year-old; a beginner; a busy manager; a group of students; my grandmother; a
        sceptical friend; someone new to the subject; an expert in another field; a class of
        teenagers; a tourist; a journalist; a curious neighbour
    tone = friendly; formal; humorous; calm; enthusiastic; poetic; matter-of-fact; dramatic; warm;
        ironic; old-fashioned; cheerful
    persona = a pirate captain; a medieval knight; a wise old librarian; a sports commentator; a
        grumpy chef; a detective from the 1930s; a museum guide; a patient teacher; a time
        traveller; a talking houseplant; a news presenter; a ship's cat; a travelling salesman; a
        gardener; an inventor; a lighthouse keeper; a stand-up comedian; a ghost in an old hotel;
        a mountain guide; a famous explorer
    form = short story; poem; haiku; song lyric; fable; monologue; diary entry; letter; fairy
        tale; limerick; speech; dialogue between two friends; scene for a play; riddle; news
        report; blog post; product description; children's story; toast; advertisement
    person = my boss; a colleague; a customer; my landlord; a professor; an old friend; the whole
        team; a job applicant; the city council; a supplier; my neighbours; a hotel; my sister; a
        magazine editor
    purpose = ask for a day off; apologise for a delay; say thank you; invite them to dinner;
        complain about a broken product; suggest a meeting; decline an offer politely; ask for
        advice; announce a change of plans; remind them of a deadline; share good news; ask for a
        refund; introduce myself; congratulate them; cancel a subscription; ask about opening
        hours
    problem = I cannot fall asleep at night; my plants keep dying; I always run late; I have too
        many meetings; my phone distracts me; I am nervous about a new job; I argue with my
        brother about money; I cannot decide between two jobs; my budget never lasts the month; I
        forget people's names; I lost interest in my hobby; my team does not talk to each other;
        my flat is too small; my knees hurt when I run; my child refuses to eat vegetables; I am
        bored at weekends; I want to read more; I have to give a speech tomorrow; my laptop is
        very slow; I feel lonely in a new town
    count = three; four; five; six; seven; ten
    limit = fifty words; one paragraph; two sentences; a hundred words; three short paragraphs
    animal = cats; dogs; snails; owls; horses; frogs; sparrows
    name = Anna; Ben; Carla; David; Ella; Frank; Gita; Henry
    country = Japan; Brazil; Italy; Kenya; Canada; India; Norway; Mexico; Turkey; New Zealand;
        Morocco; Greece; Vietnam; Peru; Iceland; Portugal
""")

_OPENINGS = weighted_paragraphs("""
    3 Explain {topic} to {reader}.

    2 What is {topic}, and why does it matter?

    2 Tell me about {topic}.

    2 What does the word '{topic}' mean? [Use it in two sentences.|Where does one meet it?|Give an
    example.]

    1.5 Describe {topic} in {limit}.

    2 [Name|List|Give me] {count} [interesting facts|common misunderstandings|questions one could
    ask|important things to know] about {topic}.

    2 Compare {topic} with {othertopic}. [What do they have in common?|Make a table.|Which one
    matters more in daily life?|]

    1 What is the difference between {topic} and {othertopic}?

    4 Write a {form} about {topic}[.| in a {tone} tone.|, no longer than {limit}.]

    2 Write a {tone} {form} in which {persona} comes across {topic}.

    2.5 Imagine you are {persona}. [Tell me what you think of {topic}.|Talk about {topic} the way
    you would at a party.|Answer my questions about {topic}. First: why should I care?]

    1.5 Pretend to be {persona} and [introduce yourself|describe your typical day|give me advice:
    {problem}].

    3.5 Write [an email|a message|a letter] to {person} to {purpose}. [Keep the tone {tone}.|Make
    it brief.|The background is {topic}.|]

    3 {problem}. [What can I do?|Give me {count} practical tips.|What would you suggest, and
    why?|Help me make a plan.]

    2 Give me a [step-by-step guide|checklist|one-week plan] for [someone interested in
    {topic}|learning about {topic}|teaching {topic} to {reader}].

    2 What are the [advantages and disadvantages|risks and benefits|main arguments for and
    against] of {topic}?

    1.5 Write an outline for [an essay|a talk|a blog post|a lesson] on {topic}, with [headings and
    key points|a strong opening|{count} sections].

    1.5 Is {topic} [a good thing|overrated|still important today|likely to change in the next
    twenty years]? [Argue both sides.|Take a position and defend it.|]

    1.5 How [would you explain|has the world changed because of|can a family benefit from|do
    scientists study] {topic}?

    1 Suggest [a title|{count} titles|a slogan|names for a shop|{count} gifts for someone] [to do
    with|inspired by] {topic}.

    1.5 Plan a [trip of {count} days|weekend] in {country} for [a couple|a family with small
    children|a student with little money|someone who loves {topic}].

    1 What should I know about [food|customs|the weather|history|language] in {country} before I
    travel there?

    0.7 {name} is taller than {nameb} but shorter than {namec}. {named} is shorter than {nameb}.
    [Who is the tallest?|Order them by height and explain.]

    0.5 If all {animal} like music and some musicians are {animal}, [what follows|does it follow
    that some musicians like music]? Explain your reasoning.

    0.7 A [farmer|shopkeeper|teacher] has a puzzle about {topic}: [make up a short riddle and give
    its solution.|invent a logic puzzle with three clues and solve it.]

    0.6 Which word does not belong: {topic}, {othertopic}, [stone|apple|number|Tuesday|violin]?
    [Explain.|Why?]

    1 Write a review of [a book|a film|a restaurant|a museum|an app] that is about {topic}. [Be
    fair.|Make it {tone}.|]

    1 [Finish|Continue] this story in {limit}: It began on a quiet morning, when {name} noticed
    {topic} where it had no business to be.

    1 How does {topic} [relate to|depend on|influence] {othertopic}?

    1.5 Hi! [I have been thinking about {topic}.|Someone mentioned {topic} today.|I know nothing
    about {topic}.] [Can you help me understand it?|What should I read first?|What do most people
    get wrong?]

    0.7 Translate the idea of {topic} into [an everyday image|a metaphor|a drawing you describe in
    words] for {reader}.

    1 Give a definition of {topic} and [an example|a counterexample|its opposite|its history in
    short].

    1 Write {count} quiz questions on {topic}, with answers.

    0.7 [Good morning!|Hello,|] {persona} asks you: what is {topic} good for? Reply in a {tone}
    tone.
""")
_WITH_GLOSS = paragraphs("""
    By {topic} I mean {gloss}. [Write a paragraph about it.|Explain it to {reader}.|Give me
    {count} examples.|Why is it interesting?|Make a {form} out of it.]

    A dictionary says of {topic}: {gloss}. [Put this in simpler words.|Expand it into a
    paragraph.|Use it in a {form}.|Give {count} related words and explain them.]

    What is {topic} ({gloss})? [Answer in {limit}.|Tell {reader}.|]
""")
_SEQUELS = paragraphs("""
    Now make it half as long.

    Rewrite your answer for {reader}.

    Can you put that in a {tone} tone?

    Turn this into a {form}.

    What is the weakest point of what you wrote?

    Summarise it in one sentence.

    Give a concrete example.

    Now argue the opposite.

    Translate the first sentence into French.

    List the key words you used and explain each.

    Why did you choose this beginning?

    Please turn it into bullet points.

    Make it longer and add details.

    Add a title and a last line.

    What would {persona} say about it?

    Remove every adjective.

    Is all of that true? Point out what is uncertain.

    Rewrite it as a table.

    Use simpler words, please.

    Ask me {count} questions about it.

    Which part matters most, and why?

    Rewrite it in the past tense.

    Give me a second version that differs in style.

    How would you improve your answer?

    Continue from there.

    Say it again in exactly three sentences.

    Now write an email about it to {person}.

    Check your answer for mistakes and correct them.

    What should I do first?

    Explain the last point in more depth.

    Thanks! Could you make it rhyme?
""")


def chat(draw: Draw) -> tuple[str, ...]:
    """Return a question or request, a third of the time with a second one about the answer."""
    topic, other = draw.topic(), draw.topic()
    template = draw.weighted(_OPENINGS)
    if topic.gloss and draw.chance(0.15):
        template = draw.one(_WITH_GLOSS)
    names = draw.some(POOLS["name"], 4)
    bound = dict(zip(("name", "nameb", "namec", "named"), names, strict=True))
    bound |= {"topic": topic.words, "othertopic": other.words, "gloss": topic.gloss}
    text = fill(template, draw, POOLS, **bound)
    turns = (text[0].upper() + text[1:],)
    if draw.chance(0.33):
        turns += (fill(draw.one(_SEQUELS), draw, POOLS),)
    return turns
