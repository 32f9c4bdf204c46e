//! Describes the machine and the compilation of the kernels.

use std::time::Instant;

use rayon::prelude::*;
use serde_json::json;

use crate::bytes::bytes_of;
use crate::engine::cuda::device::Element;
use crate::engine::cuda::driver::cache::Cache;
use crate::engine::cuda::driver::nccl::{Gpus, Nccl};
use crate::engine::cuda::driver::nvrtc::{Architecture, Target, Usage, usage};
use crate::engine::cuda::driver::probe;
use crate::engine::cuda::kernels::{SOURCES, Source};
use crate::engine::cuda::state::download;
use crate::error::{Error, Result};
use crate::memory::format_bytes;
use crate::ranks::Group;

use super::test_case::name_of;
use super::{Check, Outcome, Session};

pub fn checks(emulated: bool) -> Vec<Check> {
    let mut checks = vec![Check::new("device", device)];
    if !emulated {
        checks.insert(0, Check::new("libraries", |_| libraries()));
        checks.push(Check::new("NCCL", sums));
        // First, so that all others find the kernels in the cache.
        checks.insert(1, Check::new("compilation", |_| compilation()));
    }
    checks
}

fn libraries() -> Result<Outcome> {
    let lines = probe()?.describe();
    let clocks = std::process::Command::new("nvidia-smi")
        .args([
            "--query-gpu=driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu,mig.mode.current",
            "--format=csv",
        ])
        .output()
        .map_or_else(
            |error| format!("nvidia-smi: {error}"),
            |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        );
    let line = format!("{}\n    {}", lines.join("; "), clocks.replace('\n', "\n    "));
    Ok(Outcome::good(line, json!({"found": lines, "nvidia_smi": clocks})))
}

fn device(session: &mut Session<'_>) -> Result<Outcome> {
    let started = Instant::now();
    let device = session.device()?;
    let seconds = started.elapsed().as_secs_f64();
    let free = device.free_memory()?;
    let p = device.properties();
    let line = format!(
        "{}, compute capability {}.{}, {} multiprocessors, {} of memory ({} free), {:.0} GB/s by its clock, \
         {} KiB of shared memory a block; opened in {seconds:.2} s",
        p.name,
        p.capability.0,
        p.capability.1,
        p.multiprocessors,
        format_bytes(p.memory),
        format_bytes(free),
        p.bandwidth / 1e9,
        p.shared >> 10,
    );
    let data = json!({
        "name": p.name,
        "capability": [p.capability.0, p.capability.1],
        "multiprocessors": p.multiprocessors,
        "memory": p.memory,
        "free": free,
        "bandwidth_by_clock": p.bandwidth,
        "shared": p.shared,
        "driver": p.driver,
        "seconds_to_open": seconds,
        "processors": rayon::current_num_threads(),
    });
    Ok(Outcome::good(line, data))
}

/// Adds up numbers over one rank, behind a recorded point of the device's stream, and exchanges bytes with itself: what
/// several ranks do, on one GPU.
fn sums(session: &mut Session<'_>) -> Result<Outcome> {
    let nccl = match Nccl::find() {
        Ok(nccl) => nccl,
        Err(error) => {
            return Ok(Outcome::good(format!("not tested: {error}"), json!({"found": false})));
        }
    };
    let started = Instant::now();
    let gpus = Gpus::connect(&nccl, &probe()?, 0, 1, &nccl.fresh_id()?)?;
    let seconds = started.elapsed().as_secs_f64();
    let device = session.device()?;
    let values: Vec<f32> = (0..1 << 20).map(|i| i as f32).collect();
    let bytes = size_of_val(&values[..]) as u64;
    let from = device.allocate(2 * bytes)?;
    let to = from.offset(bytes);
    device.upload(from, bytes_of(&values))?;
    device.fill(to, 0, bytes)?;
    // Outside of the recording, as in the first step of training.
    device.point(0)?;
    device.begin_capture()?;
    let work = device.copy(from, to, bytes).and_then(|()| device.point(0));
    let graph = device.end_capture()?;
    work?;
    let mut same = true;
    for _ in 0..2 {
        device.fill(to, 0, bytes)?;
        device.replay(graph)?;
        gpus.start_sum_on_gpu(to.0, values.len(), device.event(0)?)?;
        gpus.finish_sums_on_gpu()?;
        let sums: Vec<f32> = download(device, to, values.len())?;
        same &= sums == values;
    }
    device.drop_graph(graph);
    device.release(from);
    same &= gpus.gather(vec![7; 1000])? == [vec![7; 1000]];
    let line = format!(
        "{}; connected in {seconds:.2} s; {} of one rank",
        nccl.describe(),
        if same { "exact sums" } else { "WRONG sums or bytes" }
    );
    let data = json!({"found": true, "library": nccl.describe(), "seconds_to_connect": seconds});
    Ok(Outcome::new(same, line, data))
}

/// A source that was compiled for an element.
struct Compilation {
    name: String,
    seconds: f64,
    kernels: Vec<Usage>,
}

/// Compiles all sources at once, through the cache, and reports the resources of each kernel. Register spilling is a
/// failure.
fn compilation() -> Result<Outcome> {
    let found = probe()?;
    let nvrtc = found.nvrtc();
    let device = Architecture::of(found.properties().capability);
    let target = Target::for_device(device, nvrtc.architectures());
    let target = target.ok_or_else(|| {
        Error::Failed(format!("NVRTC knows no architecture that runs on sm_{}", device.0))
    })?;
    let cache = Cache::of_user();
    let elements = [Element::F32, Element::Bf16, Element::F16];
    let all = SOURCES.iter().flat_map(|source| {
        let elements = elements.into_iter().filter(|&e| source.is_for(e));
        elements.map(move |element| (source, element))
    });
    let all: Vec<(&Source, Element)> = all.collect();
    let started = Instant::now();
    let compiled = all.into_par_iter().map(|(source, element)| -> Result<Compilation> {
        let started = Instant::now();
        let compiled = cache.compiled(nvrtc, source, element, target)?;
        Ok(Compilation {
            name: format!("{} {}", source.name, name_of(element)),
            seconds: started.elapsed().as_secs_f64(),
            kernels: usage(&compiled.log),
        })
    });
    let compiled: Vec<Result<Compilation>> = compiled.collect();
    let seconds = started.elapsed().as_secs_f64();
    let (mut lines, mut data) = (Vec::new(), serde_json::Map::new());
    let (mut kernels, mut spilling, mut failed) = (0, 0, 0);
    for source in compiled {
        let source = match source {
            Ok(source) => source,
            Err(error) => {
                failed += 1;
                lines.push(error.to_string());
                continue;
            }
        };
        lines.push(format!("{}: {:.2} s", source.name, source.seconds));
        let mut usages = serde_json::Map::new();
        for u in &source.kernels {
            let spilt = u.spill_stores + u.spill_loads;
            kernels += 1;
            spilling += usize::from(spilt > 0);
            lines.push(format!(
                "  {:<28} {:>3} registers, {:>5} bytes shared, {:>3} of local memory, {spilt} spilt",
                u.kernel, u.registers, u.shared, u.stack
            ));
            let usage = json!({
                "registers": u.registers,
                "shared": u.shared,
                "local": u.stack,
                "spill_stores": u.spill_stores,
                "spill_loads": u.spill_loads,
            });
            usages.insert(u.kernel.clone(), usage);
        }
        data.insert(source.name, json!({"seconds": source.seconds, "kernels": usages}));
    }
    let line =
        format!("{seconds:.1} s, {kernels} kernels, {spilling} spill, {failed} sources failed");
    Ok(Outcome::new(
        spilling == 0 && failed == 0,
        format!("{line}\n    {}", lines.join("\n    ")),
        json!({"seconds": seconds, "spilling": spilling, "failed": failed, "sources": data}),
    ))
}
