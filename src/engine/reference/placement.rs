//! Places the reference model: shared across threads on the CPU, on one dedicated thread with a
//! GPU.

use std::ops::Range;

use super::modules::{self, Modules};
use crate::data::Packed;
use crate::error::{Error, Result};
use crate::model::{Config, Layout};

/// The modules, and the threads that run them.
pub(super) enum Placement {
    Cpu {
        model: Option<Box<dyn Modules + Send + Sync>>,
        /// One single-threaded pool per part of a batch: dfdx's matrix products use all threads of
        /// their pool, so the parts don't contend.
        pools: Vec<rayon::ThreadPool>,
    },
    #[cfg(feature = "dfdx-cuda")]
    Gpu(gpu::Gpu),
}

/// Starts `count` single-threaded pools.
fn pools(count: usize) -> Result<Vec<rayon::ThreadPool>> {
    (0..count)
        .map(|_| rayon::ThreadPoolBuilder::new().num_threads(1).build())
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| Error::Failed(format!("no thread could be started: {e}")))
}

impl Placement {
    /// Places the model on the CPU; a batch is divided into one part per thread.
    pub(super) fn cpu(threads: usize) -> Result<Self> {
        Ok(Self::Cpu { model: None, pools: pools(threads)? })
    }

    /// Changes the number of threads; a GPU takes a batch whole.
    pub(super) fn with_threads(self, threads: usize) -> Result<Self> {
        match self {
            Self::Cpu { model, .. } => Ok(Self::Cpu { model, pools: pools(threads)? }),
            #[cfg(feature = "dfdx-cuda")]
            gpu @ Self::Gpu(_) => Ok(gpu),
        }
    }

    /// Places the model on the first GPU; returns an error if dfdx finds none.
    #[cfg(feature = "dfdx-cuda")]
    pub(super) fn gpu() -> Result<Self> {
        Ok(Self::Gpu(gpu::Gpu::open()?))
    }

    /// Returns the number of parts of a batch.
    pub(super) fn parts(&self) -> usize {
        match self {
            Self::Cpu { pools, .. } => pools.len(),
            #[cfg(feature = "dfdx-cuda")]
            Self::Gpu(_) => 1,
        }
    }

    /// Builds the modules unless they exist.
    pub(super) fn fill(&mut self, config: &Config, layout: &Layout, values: &[f32]) -> Result<()> {
        match self {
            Self::Cpu { model, .. } => {
                if model.is_none() {
                    *model = Some(modules::on_cpu(config, layout, values)?);
                }
                Ok(())
            }
            #[cfg(feature = "dfdx-cuda")]
            Self::Gpu(gpu) => gpu.fill(config, layout, values),
        }
    }

    /// Drops the modules: the parameters have changed.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Cpu { model, .. } => *model = None,
            #[cfg(feature = "dfdx-cuda")]
            Self::Gpu(gpu) => gpu.clear(),
        }
    }

    /// Runs `work` on the parts of a batch and returns the results in order. Panics before
    /// [`Placement::fill`].
    pub(super) fn in_parts<R: Send>(
        &self,
        batch: &Packed,
        work: impl Fn(&dyn Modules, Range<usize>) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        match self {
            Self::Cpu { model, pools } => {
                let model = model.as_deref().expect("the modules were built");
                let parts = batch.balanced(pools.len());
                std::thread::scope(|scope| {
                    let running: Vec<_> = parts
                        .into_iter()
                        .zip(pools)
                        .map(|(part, pool)| scope.spawn(|| pool.install(|| work(model, part))))
                        .collect();
                    running
                        .into_iter()
                        .map(|part| {
                            part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                        })
                        .collect()
                })
            }
            #[cfg(feature = "dfdx-cuda")]
            Self::Gpu(gpu) => {
                let all = 0..batch.sequences();
                Ok(vec![gpu.run(|model| work(model, all))?])
            }
        }
    }

    /// Runs `work` once, with all threads. Panics before [`Placement::fill`].
    pub(super) fn whole<R: Send>(
        &self,
        work: impl FnOnce(&dyn Modules) -> Result<R> + Send,
    ) -> Result<R> {
        match self {
            Self::Cpu { model, .. } => work(model.as_deref().expect("the modules were built")),
            #[cfg(feature = "dfdx-cuda")]
            Self::Gpu(gpu) => gpu.run(work),
        }
    }
}

#[cfg(feature = "dfdx-cuda")]
mod gpu {
    //! dfdx's `Cuda` is bound to the thread that opened it, so the device and all its tensors stay
    //! on the one thread of a pool.

    use std::cell::RefCell;

    use dfdx::prelude::Cuda;

    use super::*;

    #[derive(Default)]
    struct Here {
        device: Option<Cuda>,
        model: Option<Box<dyn Modules>>,
    }

    thread_local! {
        /// The device and the model of this thread.
        static HERE: RefCell<Here> = RefCell::default();
    }

    pub(in super::super) struct Gpu(rayon::ThreadPool);

    impl Gpu {
        pub(super) fn open() -> Result<Self> {
            let pool = pools(1)?.remove(0);
            pool.install(|| {
                let device = Cuda::try_build(0, 0)
                    .map_err(|e| Error::Failed(format!("dfdx can't open the first GPU: {e}")))?;
                HERE.with_borrow_mut(|here| here.device = Some(device));
                Ok::<_, Error>(())
            })?;
            Ok(Self(pool))
        }

        pub(super) fn fill(
            &mut self,
            config: &Config,
            layout: &Layout,
            values: &[f32],
        ) -> Result<()> {
            self.0.install(|| {
                HERE.with_borrow_mut(|here| {
                    let device = here.device.as_ref().expect("opened in `open`");
                    if here.model.is_none() {
                        here.model = Some(modules::on_gpu(device, config, layout, values)?);
                    }
                    Ok(())
                })
            })
        }

        pub(super) fn clear(&mut self) {
            self.0.install(|| HERE.with_borrow_mut(|here| here.model = None));
        }

        pub(super) fn run<R: Send>(
            &self,
            work: impl FnOnce(&dyn Modules) -> Result<R> + Send,
        ) -> Result<R> {
            self.0.install(|| {
                HERE.with_borrow(|here| {
                    work(here.model.as_deref().expect("the modules were built"))
                })
            })
        }
    }
}
