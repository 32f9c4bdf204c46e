//! Which rank a process is: from the variables of the program that started it.

use crate::error::{Error, Result};

/// The place of this process among those that were started together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// What started the processes.
    pub by: &'static str,
    /// The number of this process, from 0.
    pub rank: usize,
    /// The number of processes.
    pub size: usize,
    /// The number of this process among those of its host, if the launcher counts them: it chooses the GPU.
    pub local_rank: Option<usize>,
}

/// The variables of each launcher: rank, size, rank on the host. Slurm's are those of a step, which only `srun` sets:
/// in a batch script, one process is one process.
const LAUNCHERS: [(&str, [&str; 3]); 4] = [
    ("Open MPI", ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"]),
    ("torchrun", ["RANK", "WORLD_SIZE", "LOCAL_RANK"]),
    ("PMI", ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"]),
    ("Slurm", ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"]),
];

impl Launch {
    /// Returns the place of this process: `--rank` and `--world` if both are given, else what the launcher's
    /// variables say; None for a process that trains alone.
    ///
    /// # Errors
    /// If a variable is no number, or the rank is not below the number of processes.
    pub fn find(rank: Option<usize>, world: Option<usize>) -> Result<Option<Self>> {
        Self::of(rank, world, |name| std::env::var(name).ok())
    }

    /// Returns whether a launcher of MPI started this process.
    pub fn is_mpi(&self) -> bool {
        matches!(self.by, "Open MPI" | "PMI")
    }

    fn of(
        rank: Option<usize>,
        world: Option<usize>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>> {
        let number = |name: &str| match variable(name) {
            None => Ok(None),
            Some(text) => text.trim().parse::<usize>().map(Some).map_err(|_| {
                Error::Usage(format!("the variable {name} is {text:?}; expected a number"))
            }),
        };
        let mut found = None;
        if let (Some(rank), Some(size)) = (rank, world) {
            found = Some(Self { by: "--world", rank, size, local_rank: number("LOCAL_RANK")? });
        }
        for (by, [rank, size, local]) in LAUNCHERS {
            if found.is_some() {
                break;
            }
            if let (Some(rank), Some(size)) = (number(rank)?, number(size)?) {
                found = Some(Self { by, rank, size, local_rank: number(local)? });
            }
        }
        match found {
            Some(Self { by, rank, size, .. }) if rank >= size => Err(Error::Usage(format!(
                "{by} counts this process as rank {rank} of {size}; expected a rank below {size}"
            ))),
            found => Ok(found.filter(|launch| launch.size > 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Option<Launch>> {
        let variable = |name: &str| {
            let mut all = variables.iter();
            all.find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
        };
        Launch::of(None, None, variable)
    }

    #[test]
    fn every_launcher_is_recognised_and_one_process_is_alone() {
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let launch = found(&open_mpi).unwrap().unwrap();
        assert_eq!((launch.by, launch.rank, launch.size), ("Open MPI", 1, 4));
        let torchrun = [("RANK", "2"), ("WORLD_SIZE", "3"), ("LOCAL_RANK", "0")];
        let launch = found(&torchrun).unwrap().unwrap();
        assert_eq!((launch.rank, launch.size, launch.local_rank), (2, 3, Some(0)));
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
        assert_eq!(found(&slurm).unwrap(), None, "a batch script");
        let step = [("SLURM_PROCID", "7"), ("SLURM_STEP_NUM_TASKS", "8")];
        assert_eq!(found(&step).unwrap().unwrap().rank, 7);
        assert_eq!(found(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]).unwrap(), None);
        assert_eq!(found(&[]).unwrap(), None);
    }

    #[test]
    fn options_come_before_variables_and_nonsense_is_refused() {
        let variables = |_: &str| Some("9".to_owned());
        let launch = Launch::of(Some(1), Some(2), variables).unwrap().unwrap();
        assert_eq!((launch.by, launch.rank, launch.size), ("--world", 1, 2));
        let message = found(&[("RANK", "x"), ("WORLD_SIZE", "2")]).unwrap_err().to_string();
        assert_eq!(message, "the variable RANK is \"x\"; expected a number");
        let message = found(&[("RANK", "2"), ("WORLD_SIZE", "2")]).unwrap_err().to_string();
        assert_eq!(message, "torchrun counts this process as rank 2 of 2; expected a rank below 2");
    }
}
