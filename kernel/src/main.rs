//! The notebook kernel and REPL of Cloze.

fn main() {
    evcxr::runtime_hook();
}
