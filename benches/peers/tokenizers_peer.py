"""Times the Python package `tokenizers` on the text of the bench `tokenization`.

    python3 -m venv /tmp/peer && /tmp/peer/bin/pip install tokenizers
    CLOZE_TEST_DATA=... /tmp/peer/bin/python benches/peers/tokenizers_peer.py

The same lines, the same vocabulary, all threads (the package's own, through encode_batch) and one.
`encode_batch_fast` skips offsets; `encode_batch` computes them. The best of five runs is printed.
"""

import gzip
import os
import sys
import time

data = os.environ["CLOZE_TEST_DATA"]
one_thread = "--one-thread" in sys.argv
os.environ["TOKENIZERS_PARALLELISM"] = "false" if one_thread else "true"

from tokenizers import BertWordPieceTokenizer  # noqa: E402  (reads the environment on import)

with gzip.open(f"{data}/text/wikipedia-squad-paragraphs.txt.gz", "rt", encoding="utf-8") as file:
    lines = [line.strip() for line in file if line.strip()]
size = sum(len(line.encode()) for line in lines)
tokenizer = BertWordPieceTokenizer(f"{data}/vocab/bert-base-uncased-vocab.txt", lowercase=True)


def best(encode):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        encodings = encode(lines)
        times.append(time.perf_counter() - start)
    return min(times), sum(len(e.ids) for e in encodings)


for name, encode in [
    ("ids", tokenizer._tokenizer.encode_batch_fast),
    ("ids and offsets", tokenizer.encode_batch),
]:
    seconds, tokens = best(encode)
    threads = "one thread" if one_thread else "all threads"
    print(f"{name}, {threads}: {size / seconds / 1e6:.1f} MB/s, {tokens / seconds / 1e6:.2f} M tokens/s")
