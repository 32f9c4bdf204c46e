//! Remembers signatures: a signed message that arrives a second time is a copy sent by somebody else.

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;

use crate::mutex::lock;

/// How many signatures are remembered, as in Jupyter's own `Session`: some 10 MB at most.
const REMEMBERED: usize = 1 << 16;

/// The signatures of the last messages, on all sockets.
#[derive(Default)]
pub struct Signatures(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    set: HashSet<Box<[u8]>>,
    /// The oldest first.
    order: VecDeque<Box<[u8]>>,
}

impl Signatures {
    /// Records a signature, and returns whether it is new.
    pub fn is_new(&self, signature: &[u8]) -> bool {
        let mut seen = lock(&self.0);
        let Seen { set, order } = &mut *seen;
        if !set.insert(signature.into()) {
            return false;
        }
        order.push_back(signature.into());
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            set.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_new_once_and_the_oldest_are_forgotten() {
        let seen = Signatures::default();
        assert!(seen.is_new(b"a"));
        assert!(!seen.is_new(b"a"));
        for number in 0..REMEMBERED {
            assert!(seen.is_new(&number.to_le_bytes()));
        }
        assert!(seen.is_new(b"a"));
        let lock = seen.0.lock().unwrap();
        assert_eq!((lock.set.len(), lock.order.len()), (REMEMBERED, REMEMBERED));
    }
}
