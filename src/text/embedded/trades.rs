//! The people of the village: who does what, where, with what, and what can go wrong.

/// Everything that is told about one workshop. Each field is a phrase with a fixed place in a
/// sentence; verbs stand in the plain form and in the past.
pub(super) struct Trade {
    /// As in "they met in the bakery".
    pub place: &'static str,
    /// The same with its preposition: "in the bakery".
    pub at: &'static str,
    pub trade: &'static str,
    /// Name and whether the name is a woman's.
    pub master: (&'static str, bool),
    pub apprentice: (&'static str, bool),
    pub tool: &'static str,
    /// What the tool is for: "It is made to …".
    pub tool_use: &'static str,
    /// Where a lost tool turns up.
    pub hiding: &'static str,
    /// The material, without article.
    pub stuff: &'static str,
    /// One piece of work and several.
    pub one: &'static str,
    pub many: &'static str,
    /// "to …" and "was …".
    pub work: &'static str,
    pub working: &'static str,
    /// The three steps of the work.
    pub steps: [(&'static str, &'static str); 3],
    /// "… because …"
    pub trouble: &'static str,
    pub cause: &'static str,
    /// What the master did about it, and what came of it.
    pub remedy: &'static str,
    pub relief: &'static str,
    /// What the work should be and should not be.
    pub good: &'static str,
    pub bad: &'static str,
    /// "Why …?" and "Because …".
    pub why: &'static str,
    pub because: &'static str,
    /// "the smell of …", "the sound of …".
    pub sense: &'static str,
    pub pet: &'static str,
    pub pet_place: &'static str,
}

// One field a line, as the formatter would have it, would hide who belongs to what.
#[rustfmt::skip]
pub(super) const TRADES: [Trade; 8] = [
    Trade {
        place: "the bakery", at: "in the bakery", trade: "baker",
        master: ("Rosa", true), apprentice: ("Tom", false),
        tool: "rolling pin", tool_use: "press the dough flat", hiding: "behind a sack of flour",
        stuff: "flour", one: "loaf", many: "loaves", work: "bake bread", working: "baking bread",
        steps: [("sift the flour", "sifted the flour"), ("knead the dough", "kneaded the dough"), ("heat the oven", "heated the oven")],
        trouble: "the dough would not rise", cause: "the kitchen was too cold",
        remedy: "moved the bowl beside the stove", relief: "the dough rose high and soft",
        good: "crisp and brown", bad: "flat and pale",
        why: "does dough rise", because: "the yeast fills the dough with air",
        sense: "the smell of warm bread", pet: "grey cat", pet_place: "beside the oven",
    },
    Trade {
        place: "the mill", at: "at the mill", trade: "miller",
        master: ("Hugo", false), apprentice: ("Nell", true),
        tool: "wooden scoop", tool_use: "lift the grain", hiding: "inside an empty barrel",
        stuff: "grain", one: "sack", many: "sacks", work: "grind grain", working: "grinding grain",
        steps: [("clean the grain", "cleaned the grain"), ("open the water gate", "opened the water gate"), ("tie the sacks", "tied the sacks")],
        trouble: "the great wheel stood still", cause: "a branch was stuck in the stream",
        remedy: "pulled the branch out with a rope", relief: "the wheel turned and splashed again",
        good: "white and fine", bad: "grey and rough",
        why: "does the wheel turn", because: "the falling water pushes it round",
        sense: "the rumble of the stones", pet: "brown mouse", pet_place: "between the sacks",
    },
    Trade {
        place: "the harbour", at: "in the harbour", trade: "fisher",
        master: ("Olaf", false), apprentice: ("Mina", true),
        tool: "landing net", tool_use: "lift the fish on board", hiding: "under the old sail",
        stuff: "bait", one: "herring", many: "herrings", work: "catch fish", working: "catching fish",
        steps: [("mend the nets", "mended the nets"), ("row past the rocks", "rowed past the rocks"), ("pull in the lines", "pulled in the lines")],
        trouble: "the nets came up empty", cause: "the fish had gone to deeper water",
        remedy: "tied a longer rope to the nets", relief: "the nets came up full of silver fish",
        good: "fresh and shining", bad: "thin and dull",
        why: "does the tide come in", because: "the moon pulls at the sea",
        sense: "the smell of salt and tar", pet: "white gull", pet_place: "on the mast",
    },
    Trade {
        place: "the dairy", at: "in the dairy", trade: "dairy farmer",
        master: ("Greta", true), apprentice: ("Paul", false),
        tool: "milking stool", tool_use: "sit close to the cow", hiding: "behind the haystack",
        stuff: "milk", one: "cheese", many: "cheeses", work: "make cheese", working: "making cheese",
        steps: [("milk the cows", "milked the cows"), ("warm the milk", "warmed the milk"), ("press the curds", "pressed the curds")],
        trouble: "the spotted cow gave no milk", cause: "the noisy dogs had scared her",
        remedy: "sang a slow song in the barn", relief: "the cow filled the bucket to the top",
        good: "mild and creamy", bad: "sour and dry",
        why: "does milk turn sour", because: "tiny living things grow in warm milk",
        sense: "the sound of milk in the bucket", pet: "spotted calf", pet_place: "on the clean straw",
    },
    Trade {
        place: "the bee garden", at: "in the bee garden", trade: "beekeeper",
        master: ("Agnes", true), apprentice: ("Finn", false),
        tool: "smoke can", tool_use: "make the bees calm", hiding: "under the lavender bush",
        stuff: "wax", one: "jar of honey", many: "jars of honey", work: "gather honey", working: "gathering honey",
        steps: [("put on the veil", "put on the veil"), ("lift the lid of the hive", "lifted the lid of the hive"), ("take out the combs", "took out the combs")],
        trouble: "the bees flew away in a cloud", cause: "the hive had become too small",
        remedy: "set a bigger hive below the tree", relief: "the bees moved into their new home",
        good: "clear and golden", bad: "cloudy and thin",
        why: "do bees visit flowers", because: "they drink the sweet juice inside",
        sense: "the hum of the hives", pet: "green lizard", pet_place: "on the warm wall",
    },
    Trade {
        place: "the kitchen garden", at: "in the kitchen garden", trade: "gardener",
        master: ("Walter", false), apprentice: ("Ida", true),
        tool: "watering can", tool_use: "water the young plants", hiding: "under the pumpkin leaves",
        stuff: "seed", one: "cabbage", many: "cabbages", work: "grow cabbages", working: "growing cabbages",
        steps: [("dig the beds", "dug the beds"), ("sow the seed", "sowed the seed"), ("pull out the weeds", "pulled out the weeds")],
        trouble: "the young leaves were full of holes", cause: "the snails had come in the night",
        remedy: "laid a ring of ash around the beds", relief: "the snails stayed away and the leaves grew",
        good: "round and green", bad: "yellow and limp",
        why: "do roots grow down", because: "there is water deep in the ground",
        sense: "the smell of wet earth", pet: "fat toad", pet_place: "under the rhubarb",
    },
    Trade {
        place: "the forge", at: "in the forge", trade: "smith",
        master: ("Bruno", false), apprentice: ("Kate", true),
        tool: "long tongs", tool_use: "hold the hot iron", hiding: "in the coal box",
        stuff: "iron", one: "horseshoe", many: "horseshoes", work: "shoe horses", working: "shoeing horses",
        steps: [("blow on the fire", "blew on the fire"), ("hammer the iron", "hammered the iron"), ("cool the iron in the trough", "cooled the iron in the trough")],
        trouble: "the iron cracked under the hammer", cause: "the fire was not hot enough",
        remedy: "worked the bellows until the coals were white", relief: "the iron bent like a willow branch",
        good: "strong and smooth", bad: "weak and crooked",
        why: "does hot iron glow", because: "heat makes it give off light",
        sense: "the ring of the hammer", pet: "old horse", pet_place: "outside the wide door",
    },
    Trade {
        place: "the timber yard", at: "in the timber yard", trade: "carpenter",
        master: ("Joseph", false), apprentice: ("Clara", true),
        tool: "folding ruler", tool_use: "measure the boards", hiding: "among the wood shavings",
        stuff: "oak", one: "chair", many: "chairs", work: "build chairs", working: "building chairs",
        steps: [("measure the boards", "measured the boards"), ("saw the legs", "sawed the legs"), ("glue the joints", "glued the joints")],
        trouble: "the new chair rocked on the floor", cause: "one leg was longer than the others",
        remedy: "cut a thin slice from the long leg", relief: "the chair stood as firm as a rock",
        good: "solid and straight", bad: "wobbly and rough",
        why: "does a tree have rings", because: "it grows a new ring each year",
        sense: "the smell of fresh wood", pet: "red squirrel", pet_place: "on a pile of planks",
    },
];
