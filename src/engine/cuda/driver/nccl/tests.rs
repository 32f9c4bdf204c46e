use std::fs;

use super::*;
use crate::engine::cuda::device::{Address, Device};
use crate::engine::cuda::driver::cache::Cache;
use crate::engine::cuda::driver::fake::{Fake, SOURCE};
use crate::engine::cuda::driver::gpu::Gpu;
use crate::ranks::Ranks;

/// Runs `work` on threads, which are ranks: each has a fake of its own. Does nothing without a C compiler.
fn on_ranks(size: usize, work: impl Fn(&Fake, Gpus) + Sync) {
    let Some(first) = Fake::new(&[]) else {
        return;
    };
    let id = Nccl::find_in(&first.paths()).unwrap().fresh_id().unwrap();
    std::thread::scope(|scope| {
        for rank in 0..size {
            let (id, work) = (&id, &work);
            scope.spawn(move || {
                let fake = Fake::new(&[]).unwrap();
                let nccl = Nccl::find_in(&fake.paths()).unwrap();
                let gpus = Gpus::connect(&nccl, &fake.found(), rank, size, id).unwrap();
                work(&fake, gpus);
                fake.assert_clean();
            });
        }
    });
}

#[test]
fn without_the_library_one_sentence_says_what_to_install() {
    let Some(fake) = Fake::new(&[]) else {
        return;
    };
    assert_eq!(Nccl::find_in(&fake.paths()).unwrap().version, (2, 27, 3));
    fs::remove_file(fake.toolkit().join("lib64/libnccl.so.2")).unwrap();
    let missing = || Nccl::find_in(&fake.paths()).err().unwrap().to_string();
    let expected = "training on several GPUs needs NCCL, which was not found: install it with `pip install \
                    nvidia-nccl-cu13` (-cu12 for a driver of CUDA 12) or from your distribution (looked in ";
    assert!(missing().starts_with(expected), "{}", missing());
    // Elsewhere: the loader knows the first file by its path.
    let library = fake.toolkit().join("lib/libnccl.so.2");
    fs::create_dir(fake.toolkit().join("lib")).unwrap();
    fs::write(library, "no library").unwrap();
    assert!(missing().contains("could not use "), "{}", missing());
}

/// NVIDIA's library, if it is found, must have every function. It needs no GPU to make an identity.
#[test]
fn nvidias_own_library_is_understood() {
    let nccl = match Nccl::find() {
        Ok(nccl) => nccl,
        Err(missing) => {
            let missing = missing.to_string();
            assert!(!missing.contains("could not use "), "{missing}");
            return eprintln!("not tested: {missing}");
        }
    };
    assert!(nccl.version.0 == 2 && nccl.version.1 >= 4, "{}", nccl.describe());
    let ids = [nccl.fresh_id().unwrap(), nccl.fresh_id().unwrap()];
    assert_ne!(ids[0], ids[1]);
    let message = nccl.functions.check(4, "test").unwrap_err().to_string();
    assert!(message.starts_with("NCCL could not test: invalid argument"), "{message}");
}

#[test]
fn ranks_exchange_numbers_of_the_host() {
    for size in [2, 3] {
        on_ranks(size, |_, gpus| {
            let rank = gpus.rank();
            let ranks = Ranks::of(std::sync::Arc::new(gpus));
            let sums = ranks.start_sum(vec![rank as f32, 0.5]).recv().unwrap().unwrap();
            let all: f32 = (0..size).map(|rank| rank as f32).sum();
            assert_eq!(sums, [all, 0.5 * size as f32]);
            assert!(ranks.start_sum(Vec::new()).recv().unwrap().unwrap().is_empty());
            // Different lengths, among them none, then more than the memory of before.
            let given = |rank: usize, length: usize| vec![rank as u8; length * rank];
            for length in [1, 1000, 0, 70_000] {
                let expected: Vec<_> = (0..size).map(|rank| given(rank, length)).collect();
                assert_eq!(ranks.gather(given(rank, length)).unwrap(), expected);
            }
            assert!(ranks.any(rank == 1).unwrap());
            ranks.barrier().unwrap();
            ranks.finish();
            let message = ranks.barrier().unwrap_err().to_string();
            assert_eq!(message, "the connection of the ranks' GPUs has ended");
        });
    }
}

/// Each bucket is added up behind its point and not before, launched, recorded and replayed; what follows on the
/// engine's stream reads the sums.
#[test]
fn sums_begin_behind_the_points_of_another_stream() {
    const COUNT: usize = 1000;
    on_ranks(3, |fake, gpus| {
        let cache = Cache::at(fake.folder().join("cache"));
        let mut gpu = Gpu::with(fake.found(), cache, |_| Some(&SOURCE)).unwrap();
        let bytes = 4 * COUNT as u64;
        let [input, sums, copy] = [0; 3].map(|_| gpu.allocate(2 * bytes).unwrap());
        let second = |at: Address| at.offset(bytes);
        let missing = gpu.event(0).unwrap_err().to_string();
        assert_eq!(missing, "the point 0 was never marked");
        let launch = |gpu: &mut Gpu| {
            gpu.copy(input, sums, bytes).unwrap();
            gpu.point(0).unwrap();
            gpu.copy(second(input), second(sums), bytes).unwrap();
            gpu.point(1).unwrap();
        };
        let mut graph = None;
        for step in 0..5 {
            let own = [(step + gpus.rank()) as f32, (10 * step) as f32];
            let values: Vec<f32> = own.iter().flat_map(|&x| vec![x; COUNT]).collect();
            gpu.upload(input, bytes_of(&values)).unwrap();
            match (step, graph) {
                (0, _) => launch(&mut gpu),
                (_, None) => {
                    assert!(gpu.begin_capture().unwrap());
                    launch(&mut gpu);
                    let recorded = gpu.end_capture().unwrap();
                    gpu.replay(recorded).unwrap();
                    graph = Some(recorded);
                }
                (_, Some(graph)) => gpu.replay(graph).unwrap(),
            }
            // In the last step nothing makes the sums wait for the points.
            let waits = step < 4;
            for (point, at) in [(0, sums), (1, second(sums))] {
                let event = if waits { gpu.event(point).unwrap() } else { 0 };
                gpus.start_sum_on_gpu(at.0, COUNT, event).unwrap();
            }
            gpus.finish_sums_on_gpu().unwrap();
            gpu.copy(sums, copy, 2 * bytes).unwrap();
            let mut read = vec![0.0f32; 2 * COUNT];
            gpu.download(copy, bytes_of_mut(&mut read)).unwrap();
            let expected = [(3 * step + 3) as f32, (30 * step) as f32];
            let expected: Vec<f32> = expected.iter().flat_map(|&x| vec![x; COUNT]).collect();
            assert_eq!(read == expected, waits, "step {step}: {} {}", read[0], read[COUNT]);
        }
    });
}

#[test]
fn a_rank_that_stays_away_ends_the_connection_with_the_reason() {
    on_ranks(2, |_, mut gpus| {
        gpus.limit = Duration::from_millis(200);
        let first = gpus.rank() == 0;
        if !first {
            // Longer than the first rank waits.
            std::thread::sleep(Duration::from_millis(600));
        }
        let message = gpus.gather(vec![1]).unwrap_err().to_string();
        let expected = match first {
            true => "the other ranks have not come to the same exchange for 0.2 s",
            false => {
                "NCCL could not reach the other ranks: remote process exited or there was a network error (status 6)"
            }
        };
        assert_eq!(message, expected);
        assert!(gpus.finish_sums_on_gpu().unwrap_err().to_string().ends_with("has ended"));
    });
}
