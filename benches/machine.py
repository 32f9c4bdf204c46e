"""What the benchmarks say about the machine that they ran on."""

import os
import pathlib
import platform

# The units that decide a processor's speed, the fastest first: as /proc/cpuinfo names them, and as people do.
UNITS = {"amx_bf16": "AMX", "avx512_bf16": "AVX512-BF16", "avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}


# What makes PyTorch faster on a CPU: glibc then keeps large blocks instead of returning them to the operating system
# after every step.
PYTORCH_ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000"}


def facts():
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)


def flags():
    """Returns the names of the processor's features: on x86-64 `flags`, on ARM64 `Features`."""
    return set((facts().get("flags") or facts().get("Features") or "").split())


def processor():
    unit = next((name for flag, name in UNITS.items() if flag in flags()), "no known vector unit")
    return f"{facts().get('model name', platform.machine())} with {unit}, {os.cpu_count()} cores"
