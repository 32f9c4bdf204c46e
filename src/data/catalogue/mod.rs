//! Data sets: what there is, where officially, under which licence, and getting it.
//!
//! Sizes and checksums are those that huggingface/datasets published for the same addresses
//! (`datasets/*/dataset_infos.json`, commit 040102f); those of GLUE and SQuAD 1.1 stand in
//! tensorflow/datasets too (`tensorflow_datasets/url_checksums/{glue,squad}.txt`), and agree. Where
//! nobody published one, the first download's is kept and asked of every later one.

mod corpora;
mod mrpc;
mod obtain;

pub use obtain::{Obtained, get};

use std::path::Path;

use crate::download::Archive;
use crate::error::Result;

/// A data set.
#[derive(Debug)]
pub struct Set {
    /// As on the command line: the task's name where there is one.
    pub name: &'static str,
    pub what: &'static str,
    /// As far as the origin states it.
    pub licence: &'static str,
    pub homepage: &'static str,
    /// Name of the folder with its files.
    pub folder: &'static str,
    pub sources: &'static [Source],
    /// Makes further files of those that came, and gives their names.
    assemble: Option<Assemble>,
    /// Whether it belongs to GLUE.
    pub glue: bool,
    /// Why it can't be downloaded from where it is officially, and how it can be had.
    pub closed: Option<&'static str>,
}

type Assemble = fn(&Path) -> Result<&'static [&'static str]>;

/// A file to download.
#[derive(Debug)]
pub struct Source {
    /// The official address; of a set that is closed only the file's name.
    pub address: &'static str,
    pub size: Option<u64>,
    pub sha256: Option<&'static str>,
    holds: Holds,
}

#[derive(Debug)]
enum Holds {
    /// What is wanted, under the name that the address ends in.
    Itself,
    Members(Archive, &'static [Member]),
}

/// A file of an archive.
#[derive(Debug)]
struct Member {
    /// Its whole name in the archive.
    inside: &'static str,
    /// Its name in the set's folder.
    name: &'static str,
    form: Form,
}

/// What becomes of a file on its way out of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Same,
    /// WikiText to a paragraph a line, with blank lines between articles.
    WikiText,
    /// The Children's Book Test's books to a sentence a line, with blank lines between books.
    Books,
}

impl Set {
    /// The set of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SETS.iter().find(|set| set.name == name)
    }

    /// Bytes to download, as far as they are known.
    pub fn size(&self) -> Option<u64> {
        self.sources.iter().map(|source| source.size).sum()
    }
}

impl Source {
    /// The name that the address ends in.
    pub fn name(&self) -> &'static str {
        self.address.rsplit('/').next().unwrap_or(self.address)
    }
}

const fn file(address: &'static str, size: u64, sha256: &'static str) -> Source {
    Source {
        address,
        size: Some(size),
        sha256: Some(sha256),
        holds: Holds::Itself,
    }
}

const fn zip(
    address: &'static str,
    size: u64,
    sha256: &'static str,
    members: &'static [Member],
) -> Source {
    Source {
        address,
        size: Some(size),
        sha256: Some(sha256),
        holds: Holds::Members(Archive::Zip, members),
    }
}

const fn same(inside: &'static str, name: &'static str) -> Member {
    Member {
        inside,
        name,
        form: Form::Same,
    }
}

/// Files that only who may have them can put on a server or in a folder of their own.
const fn held(name: &'static str) -> Source {
    Source {
        address: name,
        size: None,
        sha256: None,
        holds: Holds::Itself,
    }
}

/// What most sets are.
const PLAIN: Set = Set {
    name: "",
    what: "",
    licence: "not stated",
    homepage: "",
    folder: "",
    sources: &[],
    assemble: None,
    glue: false,
    closed: None,
};

const OF_GLUE: Set = Set {
    glue: true,
    ..PLAIN
};

/// The names of GLUE's sets together.
pub const GLUE: &str = "glue";

/// All of them, GLUE's first.
pub const SETS: &[Set] = &[
    Set {
        name: "cola",
        what: "GLUE: is the sentence acceptable English? 8,551 training rows",
        homepage: "https://nyu-mll.github.io/CoLA/",
        folder: "CoLA",
        sources: &[zip(
            "https://dl.fbaipublicfiles.com/glue/data/CoLA.zip",
            376_971,
            "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff",
            &[
                same("CoLA/train.tsv", "train.tsv"),
                same("CoLA/dev.tsv", "dev.tsv"),
                same("CoLA/test.tsv", "test.tsv"),
            ],
        )],
        ..OF_GLUE
    },
    Set {
        name: "sst-2",
        what: "GLUE: is the review's sentence positive? 67,349 training rows",
        homepage: "https://nlp.stanford.edu/sentiment/",
        folder: "SST-2",
        sources: &[zip(
            "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",
            7_439_277,
            "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
            &[
                same("SST-2/train.tsv", "train.tsv"),
                same("SST-2/dev.tsv", "dev.tsv"),
                same("SST-2/test.tsv", "test.tsv"),
            ],
        )],
        ..OF_GLUE
    },
    Set {
        name: "mrpc",
        what: "GLUE: do the sentences say the same? 3,668 training rows",
        licence: "Microsoft Research, for research",
        homepage: "https://www.microsoft.com/en-us/download/details.aspx?id=52398",
        folder: "MRPC",
        sources: &[
            file(
                "https://dl.fbaipublicfiles.com/senteval/senteval_data/msr_paraphrase_train.txt",
                1_047_044,
                "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
            ),
            file(
                "https://dl.fbaipublicfiles.com/senteval/senteval_data/msr_paraphrase_test.txt",
                441_275,
                "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
            ),
            file(
                "https://dl.fbaipublicfiles.com/glue/data/mrpc_dev_ids.tsv",
                6_222,
                "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7",
            ),
        ],
        assemble: Some(mrpc::assemble),
        ..OF_GLUE
    },
    Set {
        name: "sts-b",
        what: "GLUE: how alike are the sentences, 0 to 5? 5,749 training rows",
        licence: "several, in part CC BY-SA",
        homepage: "http://ixa2.si.ehu.es/stswiki/index.php/STSbenchmark",
        folder: "STS-B",
        sources: &[zip(
            "https://dl.fbaipublicfiles.com/glue/data/STS-B.zip",
            802_872,
            "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85",
            &[
                same("STS-B/train.tsv", "train.tsv"),
                same("STS-B/dev.tsv", "dev.tsv"),
                same("STS-B/test.tsv", "test.tsv"),
            ],
        )],
        ..OF_GLUE
    },
    Set {
        name: "qqp",
        what: "GLUE: do the questions ask the same? 363,846 training rows",
        licence: "Quora's terms of service, not for commerce",
        homepage: "https://data.quora.com/First-Quora-Dataset-Release-Question-Pairs",
        folder: "QQP",
        sources: &[zip(
            "https://dl.fbaipublicfiles.com/glue/data/QQP-clean.zip",
            41_696_084,
            "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0",
            &[
                same("QQP/train.tsv", "train.tsv"),
                same("QQP/dev.tsv", "dev.tsv"),
                same("QQP/test.tsv", "test.tsv"),
            ],
        )],
        ..OF_GLUE
    },
    Set {
        name: "mnli",
        what: "GLUE: does the sentence follow, contradict, or neither? 392,702 training rows",
        licence: "several, see the paper of MultiNLI",
        homepage: "https://cims.nyu.edu/~sbowman/multinli/",
        folder: "MNLI",
        sources: &[zip(
            "https://dl.fbaipublicfiles.com/glue/data/MNLI.zip",
            312_783_507,
            "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
            &[
                same("MNLI/train.tsv", "train.tsv"),
                same("MNLI/dev_matched.tsv", "dev_matched.tsv"),
                same("MNLI/dev_mismatched.tsv", "dev_mismatched.tsv"),
                same("MNLI/test_matched.tsv", "test_matched.tsv"),
                same("MNLI/test_mismatched.tsv", "test_mismatched.tsv"),
            ],
        )],
        ..OF_GLUE
    },
    Set {
        name: "qnli",
        what: "GLUE: does the sentence answer the question? 104,743 training rows",
        licence: "CC BY-SA 4.0, as SQuAD",
        homepage: "https://rajpurkar.github.io/SQuAD-explorer/",
        folder: "QNLI",
        sources: &[zip(
            "https://dl.fbaipublicfiles.com/glue/data/QNLIv2.zip",
            10_627_589,
            "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5",
            &[
                same("QNLI/train.tsv", "train.tsv"),
                same("QNLI/dev.tsv", "dev.tsv"),
                same("QNLI/test.tsv", "test.tsv"),
            ],
        )],
        ..OF_GLUE
    },
    Set {
        name: "rte",
        what: "GLUE: does the sentence follow? 2,490 training rows",
        homepage: "https://aclweb.org/aclwiki/Recognizing_Textual_Entailment",
        folder: "RTE",
        sources: &[zip(
            "https://dl.fbaipublicfiles.com/glue/data/RTE.zip",
            697_150,
            "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee",
            &[
                same("RTE/train.tsv", "train.tsv"),
                same("RTE/dev.tsv", "dev.tsv"),
                same("RTE/test.tsv", "test.tsv"),
            ],
        )],
        ..OF_GLUE
    },
    Set {
        name: "wnli",
        what: "GLUE: whom does the pronoun mean? 635 training rows",
        homepage: "https://cs.nyu.edu/faculty/davise/papers/WinogradSchemas/WS.html",
        folder: "WNLI",
        sources: &[zip(
            "https://dl.fbaipublicfiles.com/glue/data/WNLI.zip",
            28_999,
            "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46",
            &[
                same("WNLI/train.tsv", "train.tsv"),
                same("WNLI/dev.tsv", "dev.tsv"),
                same("WNLI/test.tsv", "test.tsv"),
            ],
        )],
        ..OF_GLUE
    },
    Set {
        name: "ax",
        what: "GLUE: diagnostic pairs for a model of MNLI, without labels, 1,104 rows",
        homepage: "https://gluebenchmark.com/diagnostics",
        folder: "AX",
        sources: &[file(
            "https://dl.fbaipublicfiles.com/glue/data/AX.tsv",
            222_257,
            "0e13510b1bb14436ff7e2ee82338f0efb0133ecf2e73507a697dc210db3f05fd",
        )],
        ..OF_GLUE
    },
    Set {
        name: "squad",
        what: "SQuAD 1.1: the answer's place in a paragraph, 87,599 training questions",
        licence: "CC BY-SA 4.0",
        homepage: "https://rajpurkar.github.io/SQuAD-explorer/",
        folder: "SQuAD",
        sources: &[
            file(
                "https://rajpurkar.github.io/SQuAD-explorer/dataset/train-v1.1.json",
                30_288_272,
                "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
            ),
            file(
                "https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v1.1.json",
                4_854_279,
                "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
            ),
        ],
        ..PLAIN
    },
    Set {
        name: "squad2",
        what: "SQuAD 2.0: the same, or that there is none, 130,319 training questions",
        licence: "CC BY-SA 4.0",
        homepage: "https://rajpurkar.github.io/SQuAD-explorer/",
        folder: "SQuAD2",
        sources: &[
            file(
                "https://rajpurkar.github.io/SQuAD-explorer/dataset/train-v2.0.json",
                42_123_633,
                "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
            ),
            file(
                "https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v2.0.json",
                4_370_528,
                "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
            ),
        ],
        ..PLAIN
    },
    Set {
        name: "swag",
        what: "SWAG: which of four endings happens next? 73,546 training rows",
        homepage: "https://rowanzellers.com/swag/",
        folder: "SWAG",
        sources: &[
            file(
                "https://raw.githubusercontent.com/rowanz/swagaf/master/data/train.csv",
                28_243_333,
                "5748b51126ac255c5a6f26e1ba473b51116d6c822aeb25e63ecba282c9d0e610",
            ),
            file(
                "https://raw.githubusercontent.com/rowanz/swagaf/master/data/val.csv",
                7_893_588,
                "c0497b2cd7f3e6b7df995524b1853f62285d60d110d659b19545ca80b2903234",
            ),
            file(
                "https://raw.githubusercontent.com/rowanz/swagaf/master/data/test.csv",
                7_817_885,
                "a689a1a4e892a65ca625c1f0fcf77bcce004b59ad1caeb134ca5ec080a711cb6",
            ),
        ],
        ..PLAIN
    },
    Set {
        name: "codah",
        what: "CODAH: endings that people made to mislead models, 2,776 rows",
        licence: "ODC-BY 1.0",
        homepage: "https://github.com/Websail-NU/CODAH",
        folder: "CODAH",
        sources: &[file(
            "https://raw.githubusercontent.com/Websail-NU/CODAH/master/data/full_data.tsv",
            485_130,
            "96689f2abf2f09eb91af50e2d8f92bb553e157601908a1cee83fe68670b5c3ea",
        )],
        ..PLAIN
    },
    Set {
        name: "conll2003",
        what: "CoNLL-2003, English: names of people, places, organisations, 14,041 training sentences",
        licence: "texts Reuters RCV1, for research, by agreement",
        homepage: "https://www.clips.uantwerpen.be/conll2003/ner/",
        folder: "CoNLL-2003",
        sources: &[held("eng.train"), held("eng.testa"), held("eng.testb")],
        closed: Some(
            "Reuters' texts are given out by NIST after an agreement is signed \
             (https://trec.nist.gov/data/reuters/reuters.html), the annotations and the program that \
             joins the two at https://www.clips.uantwerpen.be/conll2003/ner/; if you have eng.train, \
             eng.testa and eng.testb, --mirror takes the folder or the address that they are in",
        ),
        ..PLAIN
    },
    Set {
        name: "wikitext-103",
        what: "Text to pre-train on: good and featured articles of Wikipedia, 103 million words",
        licence: "CC BY-SA",
        homepage: "https://arxiv.org/abs/1609.07843",
        folder: "WikiText-103",
        sources: &[Source {
            address: "https://wikitext.smerity.com/wikitext-103-raw-v1.zip",
            size: None,
            sha256: None,
            holds: Holds::Members(
                Archive::Zip,
                &[Member {
                    inside: "wikitext-103-raw/wiki.train.raw",
                    name: "wikitext-103.txt",
                    form: Form::WikiText,
                }],
            ),
        }],
        ..PLAIN
    },
    Set {
        name: "wikitext-2",
        what: "Text to pre-train on: a fiftieth of it, 2 million words",
        licence: "CC BY-SA",
        homepage: "https://arxiv.org/abs/1609.07843",
        folder: "WikiText-2",
        sources: &[Source {
            address: "https://wikitext.smerity.com/wikitext-2-raw-v1.zip",
            size: None,
            sha256: None,
            holds: Holds::Members(
                Archive::Zip,
                &[Member {
                    inside: "wikitext-2-raw/wiki.train.raw",
                    name: "wikitext-2.txt",
                    form: Form::WikiText,
                }],
            ),
        }],
        ..PLAIN
    },
    Set {
        name: "cbt",
        what: "Text to pre-train on: 98 children's books of Project Gutenberg (Children's Book Test)",
        licence: "GNU Free Documentation License 1.3",
        homepage: "https://arxiv.org/abs/1511.02301",
        folder: "CBT",
        sources: &[Source {
            address: "http://www.thespermwhale.com/jaseweston/babi/CBTest.tgz",
            size: Some(120_547_669),
            sha256: Some("932df0cadc1337b2a12b4c696b1041c1d1c6d4b6bd319874c6288f02e4a61e92"),
            holds: Holds::Members(
                Archive::TarGz,
                &[Member {
                    inside: "CBTest/data/cbt_train.txt",
                    name: "books.txt",
                    form: Form::Books,
                }],
            ),
        }],
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_list_is_well_formed() {
        let mut seen = HashSet::new();
        for set in SETS {
            assert!(
                seen.insert(set.name) && seen.insert(set.folder),
                "{}",
                set.name
            );
            assert!(set.homepage.starts_with("http"), "{}", set.name);
            assert!(
                !set.what.is_empty() && !set.sources.is_empty(),
                "{}",
                set.name
            );
            for source in set.sources {
                assert_eq!(
                    set.closed.is_none(),
                    crate::download::is_address(source.address)
                );
                if let Some(sha256) = source.sha256 {
                    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
                    assert!(sha256.len() == 64 && sha256.chars().all(hex), "{sha256}");
                }
            }
        }
        // Every task that is fine-tuned on GLUE can be had.
        for task in &crate::data::glue::TASKS {
            assert!(Set::find(task.name).is_some(), "{}", task.name);
        }
    }
}
