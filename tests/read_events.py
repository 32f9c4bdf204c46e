#!/usr/bin/env python3
"""Reads the event files that a run left with TensorBoard's own reader and compares every value with
metrics.jsonl: python tests/read_events.py OUT/trainer [OUT/trainer/runs/NAME ...]

Needs the package tensorboard; the tests of the crate don't.
"""

import json
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

for folder in map(Path, sys.argv[1:]):
    expected = {}
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        values = json.loads(line)
        step = values.pop("step")
        for name in ("time", "left_out"):
            values.pop(name, None)
        for name, value in values.items():
            scores = value.items() if isinstance(value, dict) else [(name, value)]
            group = name if isinstance(value, dict) else "train"
            for score, number in scores:
                if isinstance(number, (int, float)):
                    expected.setdefault(f"{group}/{score}", []).append((step, number))
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    assert set(tags) == set(expected), set(tags) ^ set(expected)
    for tag in tags:
        got = [(event.step, event.value) for event in events.Scalars(tag)]
        assert [step for step, _ in got] == [step for step, _ in expected[tag]], tag
        for (step, value), (_, number) in zip(got, expected[tag]):
            assert abs(value - number) <= 1e-6 * max(1.0, abs(number)), (tag, step, value, number)
    print(f"{folder}: {sum(map(len, expected.values()))} values of {len(tags)} tags agree")
