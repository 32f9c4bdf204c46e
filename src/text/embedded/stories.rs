//! The stories of the village: what can be told about every workshop.
//!
//! A story is a list of paragraphs, a paragraph a list of sentences, a sentence a list of wordings
//! of which one is used. Names in braces are replaced; `^` makes the first letter a capital.
//! M is the master, A the apprentice, V a visitor from another workshop.

type Sentence = &'static [&'static str];
pub(super) type Story = &'static [&'static [Sentence]];

pub(super) const STORIES: [Story; 10] = [
    DAY, LOST, LEARNING, TROUBLE, COUNTING, QUESTIONS, EXCHANGE, OPPOSITES, LETTER, YEAR,
];

const DAY: Story = &[
    &[
        &[
            "It was {a_season} morning, and {weather}.",
            "It was early on {a_season} morning, and {weather}.",
        ],
        &[
            "{M} the {trade} was already {at}.",
            "{M} the {trade} was up before the sun.",
        ],
        &[
            "{A} the apprentice came a little later.",
            "{A} the apprentice was not far behind.",
        ],
        &["{^sense} filled {place}.", "{^sense} greeted them {at}."],
    ],
    &[
        &["First {A} {s1p}.", "First of all {A} {s1p}."],
        &["Then {M} {s2p}.", "Next {M} {s2p}."],
        &[
            "At last they {s3p} together.",
            "In the end they {s3p} together.",
        ],
        &[
            "The {pet} stayed {pet_place} and watched.",
            "The {pet} watched them from its place {pet_place}.",
        ],
    ],
    &[
        &[
            "At noon they ate bread and soup {at}.",
            "At noon {V} the {vtrade} came from {vplace} and ate with them.",
        ],
        &[
            "In the evening {M} wrote in the book: {n1} {many}, all {good}.",
            "In the evening {M} counted {n1} {many}, all {good}.",
        ],
        &[
            "“That was a good day,” said {M}.",
            "“This is how to {work},” said {M}.",
        ],
        &[
            "{A} was tired and happy and went home.",
            "{A} said good night to the {pet} and went home.",
        ],
        &[
            "Around {place} {night}.",
            "{M} closed the door, and {night}.",
        ],
    ],
];

const LOST: Story = &[
    &[
        &[
            "One {season} day {M} the {trade} could not find the {tool}.",
            "One day in {season} the {tool} of {M} the {trade} was gone.",
        ],
        &[
            "Without the {tool} nobody could {tool_use}.",
            "How could {mhe} {tool_use} without the {tool}?",
        ],
        &["“Where is my {tool}?” cried {M}."],
        &[
            "{A} looked in every corner of {place}.",
            "{A} looked everywhere {at}, but it was not there.",
        ],
    ],
    &[
        &[
            "{V} the {vtrade} came from {vplace} and looked too.",
            "{V} the {vtrade} left {vplace} and came to help.",
        ],
        &["“Is it at your place, {V}?” asked {A}."],
        &["“No,” said {V}, “I have only my own {vtool}.”"],
        &[
            "The {pet} {pet_place} looked as if it knew something.",
            "Even the {pet} got up from its place {pet_place}.",
        ],
    ],
    &[
        &[
            "At last {A} found the {tool} {hiding}.",
            "In the end the {tool} was lying {hiding}.",
        ],
        &["“How did the {tool} get there?” asked {V}."],
        &["“I put it there myself,” said {M}, “and then I forgot it.”"],
        &[
            "{M}, {A} and {V} all laughed.",
            "Then they laughed, and {M} laughed most.",
        ],
        &[
            "Since that day the {tool} has a place of its own.",
            "Since that day {M} always knows where the {tool} is.",
        ],
    ],
];

const LEARNING: Story = &[
    &[
        &[
            "{A} wanted to learn to {work}.",
            "{A} dreamed of {working}.",
        ],
        &[
            "So {ahe} came to {place} and asked {M} the {trade}.",
            "So {ahe} went to {M} the {trade} and asked for a lesson.",
        ],
        &["“It is not hard,” said {M}, “but it takes time.”"],
    ],
    &[
        &["“First we {s1},” said {M}."],
        &["So they {s1p}."],
        &["“Next we {s2},” said {M}."],
        &["So they {s2p}."],
        &["“Last of all we {s3},” said {M}."],
        &["So they {s3p}."],
    ],
    &[
        &[
            "The first {one} was {bad}.",
            "{^ahis} first {one} was {bad}.",
        ],
        &["{A} was sad, but {M} only smiled."],
        &["“My first {one} was {bad} too,” said {M}."],
        &["The second {one} was better, and the third was {good}."],
        &[
            "{V} the {vtrade} came from {vplace} to see it.",
            "{V} the {vtrade} saw it and told everyone {vat}.",
        ],
        &[
            "Now {A} knows how to {work}.",
            "Now {A} can {work} without any help.",
        ],
    ],
];

const TROUBLE: Story = &[
    &[
        &[
            "There was trouble {at}.",
            "One {season} day there was trouble {at}.",
        ],
        &["Nobody knew why, but {trouble}."],
        &["“What can it be?” asked {A}."],
        &[
            "“Have you no {stuff} left?” asked {V} the {vtrade}.",
            "“Things like that never happen {vat},” said {V} the {vtrade}.",
        ],
    ],
    &[
        &[
            "{M} the {trade} looked at everything twice.",
            "{M} the {trade} thought for a long time.",
        ],
        &["“Now I see,” said {M}."],
        &["“This happened because {cause}.”"],
        &["So {M} {remedy}."],
        &["Soon {relief}.", "After a while {relief}."],
    ],
    &[
        &[
            "“If you know the cause, you can find the cure,” said {M}.",
            "“First find the cause,” said {M}, “and then find the cure.”",
        ],
        &["{A} wrote in the book: {trouble} because {cause}."],
        &["“And what did you do, {M}?” asked {V}."],
        &["“I {remedy},” said {M}, “and {relief}.”"],
        &[
            "{V} went back to {vplace} and told the story.",
            "{V} told the story to everyone {vat}.",
        ],
    ],
];

const COUNTING: Story = &[
    &[
        &[
            "On {day} {A} counted the {many} {at}.",
            "On {day} {M} asked {A} to count the {many} {at}.",
        ],
        &["In the morning there were {n1} {many}."],
        &["In the afternoon there were {n2} more {many}."],
        &["“How many are there now?” asked {M} the {trade}."],
        &["“{^n1} and {n2} make {sum},” said {A}."],
    ],
    &[
        &[
            "Then {V} the {vtrade} came from {vplace} and asked for one.",
            "Then {V} the {vtrade} came and wanted one {one}.",
        ],
        &["“One from {sum} leaves {less},” said {A}."],
        &["{V} gave {n3} {vmany} for it."],
        &["“Now we have {less} {many} and {n3} {vmany},” said {M}."],
    ],
    &[
        &["A good {one} is {good}, and a poor one is {bad}."],
        &[
            "All {less} were {good}, and not one was {bad}.",
            "{A} looked again: all {less} were {good}.",
        ],
        &["The {pet} {pet_place} did not count at all."],
        &[
            "It was {day}, and {weather}.",
            "It was a fine {day}, and {M} was content.",
        ],
    ],
];

const QUESTIONS: Story = &[
    &[
        &[
            "{A} the apprentice was always asking questions.",
            "{A} the apprentice liked to ask questions.",
        ],
        &["“Why {why}?” {ahe} asked one {season} evening."],
        &["{M} the {trade} put down the {tool} and thought."],
        &["“Because {because},” said {M} to {A}."],
    ],
    &[
        &["“And why is a good {one} {good}?” asked {A}."],
        &["“Because we {s1} and {s2} with care,” said {M}."],
        &["“And why does the {pet} stay {pet_place}?” asked {A}."],
        &["“Because it likes {sense},” said {M}."],
    ],
    &[
        &["“You know so much,” said {A}."],
        &["“I asked {V} the {vtrade} when I was young,” said {M}."],
        &["“And why {vwhy}?” asked {A}."],
        &["“Ask {V},” said {M}, “{vhe} is {vat} all day.”"],
        &[
            "So {A} went to {vplace}, and {V} knew it.",
            "So {A} took a lantern and went to {vplace}.",
        ],
        &["“Because {vbecause},” said {V}."],
    ],
];

const EXCHANGE: Story = &[
    &[
        &[
            "{V} the {vtrade} walked from {vplace} to {place}.",
            "One {season} day {V} the {vtrade} came from {vplace} to {place}.",
        ],
        &["“Good morning, {M},” said {V}."],
        &["“I have {n1} {vmany}, but I have not one {one}.”"],
        &["“And I have {n2} {many}, but not one {vone},” said {M} the {trade}."],
    ],
    &[
        &["“Then let us trade,” said {V}."],
        &["So {V} gave one {vone}, and {M} gave one {one}."],
        &[
            "The {vone} was {vgood}.",
            "{A} saw that the {vone} was {vgood}.",
        ],
        &[
            "The {one} was {good}.",
            "{V} saw that the {one} was {good}.",
        ],
    ],
    &[
        &[
            "Now {M} and {V} were both content.",
            "Now {V} and {M} were both happy.",
        ],
        &[
            "{V} said goodbye and went home to {vplace}.",
            "{V} petted the {pet} {pet_place} and went home to {vplace}.",
        ],
        &[
            "“A good neighbour is worth more than gold,” said {M}.",
            "“It is good to have neighbours,” said {M} to {A}.",
        ],
        &["Then {M} took the {tool} and went on {working}."],
    ],
];

const OPPOSITES: Story = &[
    &[
        &["{M} the {trade} is old, and {A} the apprentice is young."],
        &[
            "{M} is slow and careful, and {A} is quick and careless.",
            "{M} works slowly, and {A} works quickly.",
        ],
        &["{M} comes early, and {A} comes late."],
        &[
            "The {tool} of {M} is heavy, and the {tool} of {A} is light.",
            "{M} has a big {tool}, and {A} has a small one.",
        ],
    ],
    &[
        &["In the morning {M} likes to {s1}, but {A} likes to {s2}."],
        &["In the evening {A} likes to {s3}, but {M} likes to rest."],
        &["What {M} makes is {good}, and what {A} makes is sometimes {bad}."],
        &[
            "The {pet} {pet_place} likes them both.",
            "Only the {pet} {pet_place} is always the same.",
        ],
    ],
    &[
        &["“You are too slow,” says {A}."],
        &["“You are too quick,” says {M}."],
        &[
            "“You are both right,” says {V} the {vtrade}, who is visiting {place}.",
            "“You are both right,” says {V} the {vtrade}, who has come from {vplace}.",
        ],
        &["Nobody else can {work} as they do together."],
    ],
];

const LETTER: Story = &[
    &[
        &["Dear mother, I am well, and I like it {at}."],
        &["It is {season}, and I get up early to {work}."],
        &["{M} the {trade} is strict but kind."],
        &["{^mhe} has shown me how to {s1}."],
        &["Tomorrow we will {s2}, and then we will {s3}."],
    ],
    &[
        &["I use the {tool} to {tool_use}."],
        &["On {day} I lost the {tool}, and then I found it {hiding}."],
        &["There is a {pet} here, and it lives {pet_place}."],
        &["I like {sense} best of all."],
    ],
    &[
        &["My first {one} was {bad}, but my second {one} was {good}."],
        &[
            "{V} the {vtrade} came from {vplace} and praised me.",
            "{V} the {vtrade} was here and asked me to visit {vplace}.",
        ],
        &["Now I know why {trouble}: it was because {cause}."],
        &["{M} says that I will soon know how to {work}."],
        &["With love from your {A}."],
    ],
];

const YEAR: Story = &[
    &[
        &["In spring, when the rain is soft, {M} the {trade} and {A} {s1}."],
        &["In summer, when the sun is hot, they {s2}."],
        &["In autumn, when the wind is wild, they {s3}."],
        &["In winter, when the snow is deep, they sit by the fire and talk about {working}."],
    ],
    &[
        &["{V} the {vtrade} visits {place} in every season."],
        &["In {season} {vhe} brings {n1} {vmany}, and all of them are {vgood}."],
        &["“What would {place} be without you?” asks {M}."],
        &["“As quiet as {vplace} at night,” says {V}."],
    ],
    &[
        &["The {pet} does not care about the seasons."],
        &["It stays {pet_place} in the heat and in the cold."],
        &["{A} loves {sense}, and {M} loves {working}."],
        &["So one year ends {at}, and the next year begins."],
    ],
];
