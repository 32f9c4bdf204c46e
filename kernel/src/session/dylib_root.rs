//! The library that cells know as `cloze`: the crate, and functions through which the session's child
//! reaches the cells' copy of the standard library. The session template compiles it, not the kernel.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};

pub use cloze::*;

/// The store of variables between cells, in place of the one that evcxr writes into each cell: rustc would compile
/// a hash map for every cell.
#[doc(hidden)]
pub mod evcxr_runtime {
    use std::any::{Any, TypeId};
    use std::collections::HashMap;
    use std::sync::Arc;

    use cloze::display::wire::{self, Record};

    #[derive(Default)]
    pub struct VariableStore(HashMap<String, Stored>);

    struct Stored {
        value: Box<dyn Any>,
        /// The definitions behind a type of the user's own, each with its hash.
        definitions: String,
    }

    pub fn create_variable_store() -> *mut VariableStore {
        Box::into_raw(Box::default())
    }

    /// Sends the error with which `?` has ended the cell.
    pub fn fail(message: String) {
        // Cells run in a session only.
        let _ = wire::send(&Record::Failed { message });
    }

    impl VariableStore {
        pub fn put_variable<T: 'static>(&mut self, name: &str, value: T) {
            self.put(name, Box::new(value), "");
        }

        /// Puts a variable with a type of the user's own.
        pub fn put_own<T: 'static>(&mut self, name: &str, value: T, definitions: &str) {
            self.put(name, Box::new(value), definitions);
        }

        /// Returns whether a variable still has the type that the cell was compiled for, and reports one that
        /// has not.
        pub fn check_variable<T: 'static>(&mut self, name: &str) -> bool {
            self.check(name, TypeId::of::<T>(), "")
        }

        /// The same for a variable with a type of the user's own.
        pub fn check_own<T: 'static>(&mut self, name: &str, definitions: &str) -> bool {
            self.check(name, TypeId::of::<T>(), definitions)
        }

        pub fn take_variable<T: 'static>(&mut self, name: &str) -> T {
            match self.take(name).downcast() {
                Ok(value) => *value,
                Err(_) => panic!("the variable `{name}` has another type"),
            }
        }

        /// evcxr keeps the runtime of `await` here.
        pub fn lazy_arc<T: 'static, F: FnOnce() -> T>(&mut self, name: &str, create: F) -> Arc<T> {
            if !self.0.contains_key(name) {
                self.put(name, Box::new(Arc::new(create())), "");
            }
            match self.0.get(name).and_then(|it| it.value.downcast_ref::<Arc<T>>()) {
                Some(value) => Arc::clone(value),
                None => panic!("the variable `{name}` has another type"),
            }
        }

        fn put(&mut self, name: &str, value: Box<dyn Any>, definitions: &str) {
            self.0.insert(name.to_owned(), Stored { value, definitions: definitions.to_owned() });
        }

        fn take(&mut self, name: &str) -> Box<dyn Any> {
            match self.0.remove(name) {
                Some(stored) => stored.value,
                None => panic!("the variable `{name}` is missing"),
            }
        }

        fn check(&self, name: &str, expected: TypeId, definitions: &str) -> bool {
            let Some(stored) = self.0.get(name) else {
                return true;
            };
            let mut before = stored.definitions.split(' ');
            let changed = before.find(|it| !definitions.split(' ').any(|now| now == *it));
            let same = changed.is_none() && (*stored.value).type_id() == expected;
            if !same {
                let of = changed.and_then(|it| it.split(':').next());
                let old = of.map_or("an old type".to_owned(), |of| format!("the old `{of}`"));
                eprintln!("`{name}` had {old} and is gone: define it again");
                let token = wire::token().unwrap_or_default();
                println!("{}{token} EVCXR_VARIABLE_CHANGED_TYPE:{name}", wire::OPENING);
            }
            same
        }
    }
}

/// Uses what most cells use, so that it is compiled here and not in each of them: rustc shares instances of generic
/// code between crates of one optimisation level (1), if they do not depend on a type of the cell. For a tensor these
/// are its memory, its gradients and its errors, but not its shape. A product of two tensors took rustc 0.17 s in place
/// of 0.30.
#[doc(hidden)]
pub fn precompiled() {
    use std::collections::HashMap;

    use cloze::prelude::*;

    let device = Cpu::default();
    let a: Tensor<Rank2<2, 3>, f32, Cpu> = device.sample_normal();
    let b: Tensor<Rank2<3, 2>, f32, Cpu> = device.sample_uniform();
    let ids: Tensor<Rank1<2>, usize, Cpu> = device.tensor([0, 1]);
    let product = a.leaky_trace().matmul(b.clone()).softmax::<Axis<1>>() / 2.0;
    let loss = (product.fast_gelu() - 1.0).square().mean::<Rank0, _>();
    let numbers: Vec<f32> = vec![loss.array()];
    let gradients = loss.backward();
    println!("{:?} {:?}", gradients.get(&a).as_vec(), a.clone().permute::<Rank2<3, 2>, _>());
    println!("{:?}", (a.clone() + a.clone() * 0.5).gather(ids).relu().sum::<Rank0, _>().array());

    let mut counts: HashMap<String, usize> = HashMap::new();
    let words: Vec<String> = "a b".split(' ').map(str::to_string).collect();
    for word in words.clone() {
        *counts.entry(word).or_default() += 1;
    }
    let mut sorted: Vec<(String, usize)> = counts.clone().into_iter().collect();
    sorted.sort();
    println!("{counts:?} {sorted:?} {words:?} {} {numbers:?}", words.join(" "));
    let (mut floats, ids) = (numbers.clone(), vec![1usize, 2]);
    floats.sort_by(f32::total_cmp);
    floats.push(numbers.iter().sum());
    println!("{floats:?} {ids:?} {:?} {:?}", [1.0f32, 2.0], vec![floats.clone()]);
}

/// Flushes an unfinished line.
#[unsafe(no_mangle)]
pub extern "C" fn cloze_session_flush() {
    // If the reader has gone, nobody needs the output.
    let _ = std::io::stdout().flush();
}

/// Flushes an unfinished line and then writes the cell's end mark into `pipe`. Meanwhile no thread of
/// the cells can write, so that the mark does not split a long record. A cell may have redirected
/// standard output, hence the `pipe`. Returns false if the session has gone.
///
/// # Safety
///
/// `mark` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloze_session_end(
    pipe: BorrowedFd<'_>,
    mark: *const u8,
    length: usize,
) -> bool {
    // SAFETY: the caller's promise.
    let mark = unsafe { std::slice::from_raw_parts(mark, length) };
    let mut out = std::io::stdout().lock();
    // As above.
    let _ = out.flush();
    let pipe = pipe.try_clone_to_owned().map(File::from);
    pipe.and_then(|mut pipe| pipe.write_all(mark)).is_ok()
}

/// Sets or clears the flag that `cloze::interrupt::poll` checks.
#[unsafe(no_mangle)]
pub extern "C" fn cloze_session_interrupt(on: bool) {
    if on {
        cloze::interrupt::request();
    } else {
        cloze::interrupt::clear();
    }
}

/// Passes a message of the page on to the cells' widgets. `cell_runs` is set while a cell's code runs.
///
/// # Safety
///
/// `message` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloze_session_comm(message: *const u8, length: usize, cell_runs: bool) {
    // SAFETY: the caller's promise.
    let message = unsafe { std::slice::from_raw_parts(message, length) };
    if let Ok(message) = std::str::from_utf8(message) {
        cloze::view::comm::receive(message, cell_runs);
    }
}

/// Turns panics on this thread, which will run the cells, into errors of the cell. Called once.
#[unsafe(no_mangle)]
pub extern "C" fn cloze_session_start() {
    let cells = std::thread::current().id();
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() != cells {
            default(info);
            return;
        }
        let message = info.payload_as_str().unwrap_or("a panic without a message");
        let (file, line) =
            info.location().map_or((String::new(), 0), |at| (at.file().to_owned(), at.line()));
        report(message.to_owned(), file, line);
    }));
}

/// Writes around the lock of standard output, which the panicking code may hold.
fn report(message: String, file: String, line: u32) {
    use cloze::display::wire::{self, Record};
    let record = Record::Panic { message, file, line };
    if let Some(token) = wire::token()
        && let Ok(pipe) = std::io::stdout().as_fd().try_clone_to_owned()
    {
        let _ = File::from(pipe).write_all(record.line(token).as_bytes());
    }
}
