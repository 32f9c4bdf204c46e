#!/usr/bin/env python3
"""Peer: sentence embeddings (mean pooling, length 1) of the lines on standard input with OpenVINO or ONNX Runtime.

    pip install torch transformers openvino nncf onnx onnxruntime
    runtime_features.py openvino --model DIR [--dtype f32|bf16|int8] [--batch 32] < lines.txt

The texts are sorted by length and padded within a batch. OpenVINO computes one batch on each thread, the way it is
fastest. int8 is quantised from the first 300 lines by nncf, or dynamically by ONNX Runtime. The converted model stays
in --work. Prints one JSON line: real tokens per second of the faster of two passes (OpenVINO compiles for new shapes in
the first), tokenising included.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np
from tokenizers import Tokenizer

INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def feed(ids, real):
    return dict(zip(INPUTS, (ids, real, np.zeros_like(ids))))


def network(model):
    """Returns the model as a function from ids, mask and segments to the last hidden states."""
    import torch
    from transformers import AutoModel

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AutoModel.from_pretrained(model).eval()

        def forward(self, *inputs):
            return self.model(**dict(zip(INPUTS, inputs)), return_dict=False)[0]

    return Network(), tuple(torch.from_numpy(array) for array in feed(*[np.ones((1, 8), dtype=np.int64)] * 2).values())


def openvino_file(options, samples):
    import openvino

    path = options.work / f"openvino-{'int8' if options.dtype == 'int8' else 'f32'}.xml"
    if not path.exists():
        module, example = network(options.model)
        made = openvino.convert_model(module, example_input=example)
        for port, name in zip(made.inputs, INPUTS):
            port.get_tensor().set_names({name})
        made.reshape({name: openvino.PartialShape([-1, -1]) for name in INPUTS})
        if options.dtype == "int8":
            import nncf

            data = nncf.Dataset(samples, lambda ids: feed(np.array([ids]), np.ones((1, len(ids)), dtype=np.int64)))
            made = nncf.quantize(made, data, model_type=nncf.ModelType.TRANSFORMER)
        openvino.save_model(made, path, compress_to_fp16=False)
    return path


def onnx_file(options):
    import torch
    from onnxruntime.quantization import quantize_dynamic

    plain, int8 = options.work / "f32.onnx", options.work / "int8.onnx"
    if not plain.exists():
        module, example = network(options.model)
        axes = {name: {0: "batch", 1: "length"} for name in [*INPUTS, "hidden"]}
        torch.onnx.export(module, example, plain, input_names=INPUTS, output_names=["hidden"], dynamic_axes=axes,
                          opset_version=17, dynamo=False)
    if options.dtype == "int8" and not int8.exists():
        quantize_dynamic(plain, int8)
    return int8 if options.dtype == "int8" else plain


def pooled(hidden, real):
    real = real.astype(np.float32)
    mean = (hidden * real[:, :, None]).sum(1) / real.sum(1, keepdims=True)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def batches(encoded, size):
    order = sorted(range(len(encoded)), key=lambda index: -len(encoded[index]))
    for start in range(0, len(order), size):
        part = order[start:start + size]
        ids = np.zeros((len(part), len(encoded[part[0]])), dtype=np.int64)
        real = np.zeros_like(ids)
        for row, index in enumerate(part):
            ids[row, :len(encoded[index])] = encoded[index]
            real[row, :len(encoded[index])] = 1
        yield part, ids, real


def with_openvino(options, samples):
    import openvino

    core = openvino.Core()
    precision = "bf16" if options.dtype == "bf16" else "f32"
    compiled = core.compile_model(core.read_model(openvino_file(options, samples)), "CPU", {
        "INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": options.threads,
        "PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": options.threads,
    })

    def run(work, out):
        queue = openvino.AsyncInferQueue(compiled, options.threads)

        def done(request, data):
            part, real = data
            for index, vector in zip(part, pooled(request.get_output_tensor(0).data, real)):
                out[index] = vector

        queue.set_callback(done)
        for part, ids, real in work:
            queue.start_async(feed(ids, real), (part, real))
        queue.wait_all()

    return run


def with_onnxruntime(options, _):
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    session = onnxruntime.InferenceSession(str(onnx_file(options)), settings, providers=["CPUExecutionProvider"])

    def run(work, out):
        for part, ids, real in work:
            for index, vector in zip(part, pooled(session.run(None, feed(ids, real))[0], real)):
                out[index] = vector

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tools = {"openvino": with_openvino, "onnxruntime": with_onnxruntime}
    parser.add_argument("tool", choices=tools)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    work = pathlib.Path(tempfile.gettempdir()) / "cloze-peer-runtimes"
    parser.add_argument("--work", type=pathlib.Path, default=work)
    parser.add_argument("--dtype", choices=["f32", "bf16", "int8"], default="f32")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--max-len", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(options.max_len)
    lines = [line.rstrip("\n") for line in sys.stdin]
    run = tools[options.tool](options, [encoded.ids for encoded in tokenizer.encode_batch(lines[:300])])
    fastest = None
    for _ in range(2):
        started, out = time.perf_counter(), [None] * len(lines)
        encoded = [encoded.ids for encoded in tokenizer.encode_batch(lines)]
        run(batches(encoded, options.batch), out)
        seconds = time.perf_counter() - started
        fastest = min(fastest or seconds, seconds)
    tokens = sum(map(len, encoded))
    found = {"tool": options.tool, "dtype": options.dtype, "seconds": round(fastest, 2)}
    found["sentences_per_s"] = round(len(lines) / fastest, 1)
    found["real_tokens_per_s"] = round(tokens / fastest, 1)
    print(json.dumps(found), flush=True)
    # OpenVINO 2026.4 sometimes never returns from its destructors at the end of the interpreter.
    os._exit(0)


if __name__ == "__main__":
    main()
