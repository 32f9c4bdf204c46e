"""Makes the text of the speedrun: what is trained on, and what is held out.

    python3 benches/speedrun/corpus.py --data DIR --out DIR

`--data` holds text/, glue/, squad/, xquad/, nli/, codah/ and conll2003/. Writes OUT/train.txt and OUT/held-out.txt, one
paragraph on a line and a blank line between documents, and prints what they hold as one JSON object.

Nothing that a model is later measured on may be in the text: an article of Wikipedia with a paragraph of SQuAD's
development set is left out, and so is every paragraph that has eight words in a row in common with a labelled
development or test set, the lessons' among them. A document is held out if the CRC-32 of its first paragraph is
divisible by 40.
"""

import argparse
import csv
import gzip
import io
import json
import pathlib
import re
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
LESSONS = ROOT / "lessons" / "data"
BOOKS = "text/standard-ebooks/*.txt.gz"
ARTICLES = "text/wikipedia-squad-paragraphs.txt.gz"
# What models are measured on, below --data and below the lessons' data.
MEASURED = [
    "glue/*/dev*.tsv", "glue/*/test.tsv", "glue/diagnostic/*.tsv", "squad/dev-*.json.gz", "xquad/*en.json*",
    "codah/full_data.tsv", "conll2003/eng.test?", "nli/SICK_trial.txt", "nli/SICK_test_annotated.txt",
    "nli/*-dev.csv.gz",
]
LESSONS_MEASURED = ["*/dev*", "*/val*"]
# So many words in a row are a quotation.
IN_A_ROW = 8
HELD_OUT = 40
WORD = re.compile(r"[a-z0-9]+")


def content(path):
    read = gzip.open if path.suffix == ".gz" else open
    with read(path, "rb") as file:
        return file.read().decode("utf-8-sig")


def texts(path):
    """Yields the texts of a labelled file, in any of the sets' layouts."""
    name, text = path.name.removesuffix(".gz"), content(path)
    if name.endswith(".json"):
        for article in json.loads(text)["data"]:
            for paragraph in article["paragraphs"]:
                yield paragraph["context"]
                yield from (question["question"] for question in paragraph["qas"])
    elif "conll2003" in path.parts or "names" in path.parts:
        for sentence in re.split(r"\n\s*\n", text):
            yield " ".join(line.split()[0] for line in sentence.splitlines() if line.strip())
    elif name.endswith(".csv"):
        for row in csv.reader(io.StringIO(text)):
            yield from row
    else:
        for line in text.splitlines():
            yield from line.split("\t")


def in_a_row(text):
    words = WORD.findall(text.lower())
    return (" ".join(words[at:at + IN_A_ROW]) for at in range(len(words) - IN_A_ROW + 1))


def measured_files(data):
    files = [path for pattern in MEASURED for path in sorted(data.glob(pattern))]
    files += [path for pattern in LESSONS_MEASURED for path in sorted(LESSONS.glob(pattern))]
    return list(dict.fromkeys(files))


def documents(path):
    """Yields the documents of a file, as lists of paragraphs."""
    for document in re.split(r"\n\s*\n", content(path)):
        if paragraphs := [line for line in document.splitlines() if line.strip()]:
            yield paragraphs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    files = measured_files(options.data)
    for pattern in MEASURED:
        if not any(options.data.glob(pattern)):
            parser.error(f"{options.data} has no {pattern}, so nothing of it can be kept out of the text")
    measured = {row for path in files for text in texts(path) for row in in_a_row(text)}
    contexts = {text for path in options.data.glob("squad/dev-*.json.gz") for text in texts(path)}
    books = sorted(options.data.glob(BOOKS))
    counts = {"books": len(books), "measured_files": len(files), "paragraphs_left_out": 0, "articles_left_out": 0}
    outputs = {name: open(options.out / f"{name}.txt", "w", encoding="utf-8") for name in ("train", "held-out")}
    sizes = {name: {"documents": 0, "paragraphs": 0, "words": 0} for name in outputs}
    for path in [*books, options.data / ARTICLES]:
        for paragraphs in documents(path):
            if not contexts.isdisjoint(paragraphs):
                counts["articles_left_out"] += 1
                continue
            name = "train" if zlib.crc32(paragraphs[0].encode()) % HELD_OUT else "held-out"
            kept = [text for text in paragraphs if measured.isdisjoint(in_a_row(text))]
            counts["paragraphs_left_out"] += len(paragraphs) - len(kept)
            if kept:
                outputs[name].write("\n".join(kept) + "\n\n")
                sizes[name]["documents"] += 1
                sizes[name]["paragraphs"] += len(kept)
                sizes[name]["words"] += sum(len(text.split()) for text in kept)
    for file in outputs.values():
        file.close()
    print(json.dumps(counts | sizes))


if __name__ == "__main__":
    main()
