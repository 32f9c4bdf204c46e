//! Where the ranks meet if nothing has connected them: at the address of the first one. Every rank finds it in its
//! environment variables, which torchrun sets.

use std::net::TcpListener;

use super::control::{Control, Process};
use super::launch::Launch;
use crate::error::{Error, Result};

/// The port of torchrun, for launchers that set none.
const PORT: u16 = 29500;

/// The first rank's host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    port: u16,
    /// Distinguishes this run from others.
    key: String,
}

impl Address {
    /// Returns the address in the variables of this process.
    ///
    /// # Errors
    /// If there is none.
    pub fn find() -> Result<Self> {
        Self::of(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let host = variable("MASTER_ADDR").ok_or_else(|| {
            Error::Usage(
                "the variable MASTER_ADDR is not set: the ranks need the address of rank 0's host; torchrun sets it, \
                 and with other launchers you set it, and MASTER_PORT if 29500 is taken"
                    .into(),
            )
        })?;
        let mut port = match variable("MASTER_PORT") {
            None => PORT,
            Some(text) => text.trim().parse().map_err(|_| {
                Error::Usage(format!("the variable MASTER_PORT is {text:?}; expected a port"))
            })?,
        };
        // Then torchrun itself listens at the port.
        if variable("TORCHELASTIC_USE_AGENT_STORE").as_deref() == Some("True") {
            port = port.checked_add(1).unwrap_or(PORT);
        }
        let key = variable("TORCHELASTIC_RUN_ID").or_else(|| variable("SLURM_JOB_ID"));
        Ok(Self { host, port, key: key.unwrap_or_default() })
    }

    /// Returns host and port; an IPv6 address stands in brackets.
    fn text(&self) -> String {
        let Self { host, port, .. } = self;
        match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }

    /// Connects all ranks to the first, which hands `handed` to the others.
    pub fn meet(
        &self,
        launch: &Launch,
        handed: Vec<u8>,
        cleanup: impl Fn() + Send + Sync + 'static,
    ) -> Result<Control> {
        let this = Process::this(launch.rank, launch.size, self.key.clone());
        if launch.rank > 0 {
            return Control::connect(&[self.text()], this, cleanup);
        }
        let taken = |e| {
            Error::Failed(format!(
                "rank 0 can't listen at port {} of this host: {e}; set MASTER_PORT to another port on every rank",
                self.port
            ))
        };
        // The first also takes connections by IPv4, but a machine may have no IPv6.
        let listener = TcpListener::bind(("::", self.port))
            .or_else(|_| TcpListener::bind(("0.0.0.0", self.port)))
            .map_err(taken)?;
        Control::listen(&listener, this, handed, cleanup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Address> {
        Address::of(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn the_address_is_that_of_torchrun_beside_its_own_port() {
        let plain = [("MASTER_ADDR", "node1"), ("SLURM_JOB_ID", "17")];
        let expected = Address { host: "node1".into(), port: 29500, key: "17".into() };
        assert_eq!(found(&plain).unwrap(), expected);
        let text = |host| found(&[("MASTER_ADDR", host), ("MASTER_PORT", "7")]).unwrap().text();
        assert_eq!(["node1", "fe80::1", "[::1]"].map(text), ["node1:7", "[fe80::1]:7", "[::1]:7"]);
        let torchrun = [
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "4000"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_RUN_ID", "none"),
        ];
        let expected = Address { host: "10.0.0.1".into(), port: 4001, key: "none".into() };
        assert_eq!(found(&torchrun).unwrap(), expected);
    }

    #[test]
    fn what_is_missing_or_no_port_is_named() {
        let message = found(&[("MASTER_PORT", "4000")]).unwrap_err().to_string();
        assert!(message.starts_with("the variable MASTER_ADDR is not set: "), "{message}");
        let message = found(&[("MASTER_ADDR", "a"), ("MASTER_PORT", "x")]).unwrap_err();
        assert_eq!(message.to_string(), "the variable MASTER_PORT is \"x\"; expected a port");
    }

    #[test]
    fn the_ranks_meet_and_get_what_the_first_hands_them() {
        // A port that is free: the system has just given it.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = Address { host: "127.0.0.1".into(), port: free, key: String::new() };
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let address = &address;
                scope.spawn(move || {
                    let launch = Launch { by: "torchrun", rank, size: 3, local_rank: None };
                    let handed = if rank == 0 { vec![5; 128] } else { Vec::new() };
                    let control = address.meet(&launch, handed, || {}).unwrap();
                    assert_eq!((control.place.size, &control.place.handed), (3, &vec![5; 128]));
                    control.finish();
                });
            }
        });
    }
}
