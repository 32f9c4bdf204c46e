//! Where the model lives: shared by threads on the CPU, or in a thread of its own with a GPU.

use std::ops::Range;

use super::modules::{self, Modules};
use crate::data::Packed;
use crate::error::{Error, Result};
use crate::model::{Config, Layout};

/// The modules, and the threads that they run on.
pub(super) enum Home {
    Cpu {
        model: Option<Box<dyn Modules + Send + Sync>>,
        /// A pool of one thread for each part of a batch, so that dfdx's matrix products, which ask
        /// for all threads of the pool they run in, don't contend with the other parts.
        pools: Vec<rayon::ThreadPool>,
    },
    #[cfg(feature = "dfdx-cuda")]
    Gpu(gpu::Gpu),
}

/// So many pools of one thread each.
fn pools(count: usize) -> Result<Vec<rayon::ThreadPool>> {
    (0..count)
        .map(|_| rayon::ThreadPoolBuilder::new().num_threads(1).build())
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| Error::Failed(format!("no thread could be started: {e}")))
}

impl Home {
    /// On the CPU, where a batch is cut into so many parts.
    pub(super) fn cpu(threads: usize) -> Result<Self> {
        Ok(Self::Cpu {
            model: None,
            pools: pools(threads)?,
        })
    }

    /// The same with so many parts; a GPU takes a batch whole.
    pub(super) fn with_threads(self, threads: usize) -> Result<Self> {
        match self {
            Self::Cpu { model, .. } => Ok(Self::Cpu {
                model,
                pools: pools(threads)?,
            }),
            #[cfg(feature = "dfdx-cuda")]
            gpu @ Self::Gpu(_) => Ok(gpu),
        }
    }

    /// On the first GPU. Fails where dfdx finds none.
    #[cfg(feature = "dfdx-cuda")]
    pub(super) fn gpu() -> Result<Self> {
        Ok(Self::Gpu(gpu::Gpu::open()?))
    }

    /// Into how many parts a batch is cut.
    pub(super) fn parts(&self) -> usize {
        match self {
            Self::Cpu { pools, .. } => pools.len(),
            #[cfg(feature = "dfdx-cuda")]
            Self::Gpu(_) => 1,
        }
    }

    /// Builds the modules, unless they are there.
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

    /// Drops the modules: their parameters are not the model's any more.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Cpu { model, .. } => *model = None,
            #[cfg(feature = "dfdx-cuda")]
            Self::Gpu(gpu) => gpu.clear(),
        }
    }

    /// Runs `work` on the parts of a batch and gives the results in order. Panics before
    /// [`Home::fill`].
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
                            part.join()
                                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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

    /// Runs `work` once, with all threads. Panics before [`Home::fill`].
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
    //! dfdx's `Cuda` is bound to the thread that opened it, so the device and all that is on it stay in
    //! the one thread of a pool.

    use std::cell::RefCell;

    use dfdx::prelude::Cuda;

    use super::*;

    #[derive(Default)]
    struct Here {
        device: Option<Cuda>,
        model: Option<Box<dyn Modules>>,
    }

    thread_local! {
        /// What lives in this thread.
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
            self.0
                .install(|| HERE.with_borrow_mut(|here| here.model = None));
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
