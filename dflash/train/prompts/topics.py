"""Topics written down by hand, for a mix that needs no database."""

from dflash.train.prompts.draw import Topic

_WORDS = """
    the French Revolution; photosynthesis; the rules of football; sourdough bread; black holes;
    jazz music; learning a second language; moving to a new city; the Silk Road; vaccines;
    electric cars; time management; renewable energy; the Roman Empire; stage fright; houseplants;
    supply and demand; coral reefs; the printing press; job interviews; sleep; earthquakes;
    Shakespeare's plays; minimalism; inflation; the human heart; chess openings; hiking in the
    mountains; artificial intelligence; ancient Egypt; healthy breakfasts; public speaking; plate
    tectonics; the moon landing; caring for a cat; training a puppy; remote work; budgeting; the
    water cycle; volcanoes; Greek mythology; impressionist painting; photography at night; the
    immune system; recycling; the Cold War; making friends as an adult; meditation; the stock
    market; DNA; the Great Wall of China; bicycles; bees and pollination; climate change; writing
    a novel; gardening in small spaces; the Olympic Games; haiku; procrastination; antibiotics;
    the invention of the telephone; marathon training; cooking pasta; Newton's laws of motion; the
    periodic table; democracy; ocean tides; whales; the Renaissance; digital privacy; public
    libraries; tea ceremonies; solar panels; the violin; origami; fairy tales; dinosaurs; the
    history of mathematics; board games; camping; a lost umbrella; a haunted lighthouse; a robot
    that learns to paint; an astronaut's first day on Mars; a dragon afraid of fire; a detective
    in a small village; a talking fox; a street musician; a city under the sea; a clock that runs
    backwards; a grandmother's recipe book; the last tree on earth; a train that never stops;
    friendship between rivals; a letter found in an attic; an orchestra of animals; a baker who
    can see the future; a storm at sea; work-life balance; a healthy relationship with social
    media; saving for retirement; quitting a bad habit; giving feedback to a colleague; dealing
    with a noisy neighbour; preparing for exams; choosing a university; planning a wedding on a
    budget; running a small business; writing a cover letter; negotiating a salary; first aid;
    home insulation; fixing a leaking tap; learning to swim; vegetarian cooking; fermentation;
    coffee brewing; wine and cheese; street food; the Mediterranean diet; spices; knife skills;
    leftovers; a birthday cake; quantum mechanics; relativity; entropy; evolution by natural
    selection; cells; neurons; viruses; ecosystems; acids and bases; magnetism; sound waves;
    lenses; lasers; semiconductors; rockets; satellites; telescopes; comets; probability;
    statistics; prime numbers; game theory; graph theory; infinity; the golden ratio; fractals;
    cryptography; databases; operating systems; version control; web browsers; machine learning;
    neural networks; compilers; algorithms; open source software; cloud computing; unit testing;
    recursion; computer networks; spreadsheets; passwords; utilitarianism; stoicism;
    existentialism; the social contract; human rights; free will; ethics of animal testing;
    globalisation; urban planning; public transport; monetary policy; trade unions; taxation;
    microfinance; tourism; the Industrial Revolution; the Ottoman Empire; the Inca civilisation;
    the Vikings; the Black Death; the suffragettes; the Berlin Wall; the Mongol Empire;
    colonialism; the space race; the Meiji Restoration; the Harlem Renaissance; Gothic
    architecture; ballet; opera; film noir; documentary films; stand-up comedy; comics; poetry
    slams; pottery; Japanese gardens; African drumming; flamenco; folk songs; hip-hop; the piano;
    choir singing; street art; museums; rainforests; deserts; glaciers; rivers; wetlands; tundra;
    migration of birds; wolves; octopuses; elephants; ants; penguins; butterflies; sharks;
    mushrooms; roses; bamboo; seeds; soil; weather forecasting; hurricanes; rainbows; Paris;
    Kyoto; Cairo; Nairobi; Lima; Istanbul; Reykjavik; Mumbai; New York; Cape Town; Lisbon; Sydney;
    Prague; Hanoi; a weekend in the countryside; a road trip; sailing; skiing; yoga; basketball;
    tennis; cricket; rock climbing; judo; learning to draw; knitting; woodworking; stargazing;
    bird watching; keeping a diary; volunteering; public parks; electric scooters; school
    uniforms; homework; exams; bilingual education; online courses; kindergarten; apprenticeships;
    nutrition labels; allergies; headaches; back pain; stress; hydration; sunscreen; vision;
    teeth; blood pressure; gratitude; courage; honesty; patience; curiosity; loneliness; jealousy;
    forgiveness; ambition; kindness; boredom; luck
"""


def written_topics() -> tuple[Topic, ...]:
    """Return the topics."""
    return tuple(Topic(" ".join(words.split())) for words in _WORDS.split(";"))
