#!/usr/bin/env bash
# Type-checks the reference model and the lessons for dfdx's `Cuda`, without NVIDIA's compiler and without a GPU:
# dfdx's feature `ci-check` leaves its kernels out. With the argument `run`, on a machine that has both
# (docs/gpu.md), runs the test instead.
set -euo pipefail
cd "$(dirname "$0")/.."

CLOZE_LESSONS_ON_CUDA=$PWD/target/lessons-on-cuda
export CLOZE_LESSONS_ON_CUDA
mkdir -p "$CLOZE_LESSONS_ON_CUDA"
for lesson in 00_orientation 01_gradients; do
  sed "s/\\bCpu\\b/Cuda/g" "lessons/$lesson.rs" > "$CLOZE_LESSONS_ON_CUDA/${lesson#*_}.rs"
done

if [ "${1-}" = run ]; then
  cargo test --features dfdx-cuda --test dfdx_cuda
else
  cargo clippy --features dfdx-cuda,dfdx/ci-check --lib --bin cloze --test dfdx_cuda -- -D warnings
fi
