//! Emulates AMX's machine instructions on a processor without AMX.
//!
//! Such a processor raises an exception that arrives as SIGILL. The handler decodes the
//! instruction's bytes, lets [`Registers`] execute it and continues after it. This tests the
//! statements of [`hardware`](super::hardware), with the registers and addresses that the compiler
//! chose; only the processor itself remains untested.

use std::cell::RefCell;
use std::sync::Once;

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use super::emulated::Registers;

thread_local! {
    static REGISTERS: RefCell<Option<Registers>> = const { RefCell::new(None) };
}

/// Installs the signal handler.
pub fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: zeros are an empty mask and no flags; the handler accesses only the instruction's
        // memory and a thread-local that needs no initialisation.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut()), 0);
        }
    });
}

extern "C" fn handle(signal: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the third argument is the interrupted thread's context.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    let at = context.uc_mcontext.gregs[libc::REG_RIP as usize] as *const u8;
    // SAFETY: the instructions have at least 5 bytes.
    let instruction = unsafe { Instruction::decode(at, &context.uc_mcontext.gregs) };
    match instruction {
        Some(instruction) => {
            instruction.run();
            context.uc_mcontext.gregs[libc::REG_RIP as usize] += instruction.length;
        }
        None => {
            // SAFETY: `signal` may be called in a signal handler. The instruction, which is not AMX's, is
            // raised again and ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// The general registers in the processor's numbering.
const GENERAL: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

struct Instruction {
    operation: Operation,
    length: i64,
}

enum Operation {
    Configure(*const [u8; 64]),
    Release,
    Zero(usize),
    /// Register, address, stride.
    Load(usize, *const u8, usize),
    Store(usize, *mut u8, usize),
    /// Sums, left, right.
    Multiply(usize, usize, usize),
}

impl Instruction {
    /// Returns the instruction at `at` if it is one of AMX's with a displacement of zero; with
    /// `rbp` or `r13` as the base the displacement takes a byte.
    ///
    /// # Safety
    /// Seven bytes must be readable.
    unsafe fn decode(at: *const u8, general: &[i64; 23]) -> Option<Self> {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { at.cast::<[u8; 7]>().read() };
        // A three-byte VEX prefix: inverted register extensions with opcode map 2; then W = 0,
        // another register inverted, L = 0 and the mandatory prefix.
        let [0xc4, extensions, prefix, opcode, modrm, sib, displacement] = bytes else {
            return None;
        };
        if extensions & 0x1f != 2 || prefix & 0x84 != 0 {
            return None;
        }
        let extended =
            |bit: u8, low: u8| usize::from(low & 7) + usize::from(!extensions >> bit & 1) * 8;
        let value = |register: usize| general[GENERAL[register] as usize] as usize;
        let (mode, reg, rm) = (modrm >> 6, extended(7, modrm >> 3), extended(5, modrm));
        let third = usize::from(!prefix >> 3 & 15);
        // Address and stride from a base and an index register.
        let rows = || {
            let plain = mode == 0 && sib & 7 != 5 || mode == 1 && displacement == 0;
            let indexed = plain && modrm & 7 == 4 && sib >> 6 == 0;
            let (base, index) = (extended(5, sib), extended(6, sib >> 3));
            (indexed && index != 4).then(|| (value(base), value(index)))
        };
        let length_with_rows = 6 + i64::from(mode);
        let (operation, length) = match (prefix & 3, opcode, mode) {
            (0, 0x49, 3) if modrm == 0xc0 => (Operation::Release, 5),
            (0, 0x49, 0) if reg == 0 && ![4, 5].contains(&(modrm & 7)) => {
                (Operation::Configure(value(rm) as *const _), 5)
            }
            (3, 0x49, 3) if modrm & 7 == 0 => (Operation::Zero(reg), 5),
            (3, 0x4b, _) => {
                let (from, stride) = rows()?;
                (Operation::Load(reg, from as *const u8, stride), length_with_rows)
            }
            (2, 0x4b, _) => {
                let (to, stride) = rows()?;
                (Operation::Store(reg, to as *mut u8, stride), length_with_rows)
            }
            (2, 0x5c, 3) => (Operation::Multiply(reg, rm, third), 5),
            _ => return None,
        };
        Some(Self { operation, length })
    }

    fn run(&self) {
        REGISTERS.with_borrow_mut(|registers| {
            // SAFETY: the program gave this memory to the instruction.
            unsafe {
                match (&self.operation, registers.as_mut()) {
                    (Operation::Configure(from), _) => {
                        *registers = Some(Registers::configured(&**from));
                    }
                    (Operation::Release, _) => *registers = None,
                    (_, None) => panic!("tile registers used before they were configured"),
                    (&Operation::Zero(to), Some(r)) => r.clear(to),
                    (&Operation::Load(to, from, stride), Some(r)) => r.read(to, from, stride),
                    (&Operation::Store(from, to, stride), Some(r)) => r.write(from, to, stride),
                    (&Operation::Multiply(sums, a, b), Some(r)) => r.multiply(sums, a, b),
                }
            }
        });
    }
}

#[test]
fn instructions_are_decoded_with_any_base() {
    let mut general = [0; 23];
    for (number, register) in GENERAL.into_iter().enumerate() {
        general[register as usize] = 100 + number as i64;
    }
    // Encoded by GNU's assembler for the bases rcx, r12, r13 and rbp.
    for (bytes, register, from, stride, length) in [
        ([0xc4, 0xe2, 0x7b, 0x4b, 0x24, 0x19, 0x90], 4, 101, 103, 6),
        ([0xc4, 0xc2, 0x7b, 0x4b, 0x2c, 0x34, 0x90], 5, 112, 106, 6),
        ([0xc4, 0xc2, 0x7b, 0x4b, 0x7c, 0x35, 0x00], 7, 113, 106, 7),
        ([0xc4, 0xa2, 0x7b, 0x4b, 0x54, 0x25, 0x00], 2, 105, 112, 7),
    ] {
        // SAFETY: an array of seven bytes.
        let decoded = unsafe { Instruction::decode(bytes.as_ptr(), &general) }.unwrap();
        assert_eq!(decoded.length, length);
        let Operation::Load(to, address, step) = decoded.operation else {
            panic!("no load: {bytes:x?}");
        };
        assert_eq!((to, address as usize, step), (register, from, stride));
    }
    // A displacement other than zero is not used here.
    let bytes = [0xc4, 0xc2, 0x7b, 0x4b, 0x7c, 0x35, 0x40];
    // SAFETY: as above.
    assert!(unsafe { Instruction::decode(bytes.as_ptr(), &general) }.is_none());
}
