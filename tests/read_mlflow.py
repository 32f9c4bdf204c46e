#!/usr/bin/env python3
"""Reads with MLflow what `cloze records` wrote and compares every value with metrics.jsonl:
python tests/read_mlflow.py STORE OUT [OUT ...]

Needs the package mlflow or mlflow-skinny; the tests of the crate don't.
"""

import json
import math
import os
import sys
from pathlib import Path

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
from mlflow import MlflowClient

store = Path(sys.argv[1]).resolve()
client = MlflowClient(store.as_uri())
experiments = client.search_experiments()
runs = client.search_runs([experiment.experiment_id for experiment in experiments])
for out in map(Path, sys.argv[2:]):
    (run,) = [run for run in runs if run.info.run_name == out.resolve().name]
    expected = {}
    for line in (out / "trainer/metrics.jsonl").read_text(encoding="utf-8").splitlines():
        values = json.loads(line)
        step, time = values.pop("step"), round(values.pop("time") * 1000)
        values.pop("left_out", None)
        for name, value in values.items():
            scores = value.items() if isinstance(value, dict) else [(name, value)]
            group = name if isinstance(value, dict) else "train"
            for score, number in scores:
                number = math.nan if number is None else number
                if isinstance(number, (int, float)):
                    expected.setdefault(f"{group}/{score}", []).append((step, time, number))
    assert set(run.data.metrics) == set(expected), set(run.data.metrics) ^ set(expected)
    same = lambda a, b: a[:2] == b[:2] and (a[2] == b[2] or math.isnan(a[2]) and math.isnan(b[2]))
    for name, points in expected.items():
        history = client.get_metric_history(run.info.run_id, name)
        got = [(metric.step, metric.timestamp, metric.value) for metric in history]
        assert len(got) == len(points) and all(map(same, got, points)), name
    values, series = sum(map(len, expected.values())), len(expected)
    print(f"{out}: {values} values of {series} series agree; {len(run.data.params)} settings, {run.info.status}")
