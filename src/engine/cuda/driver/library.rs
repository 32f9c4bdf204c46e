//! Opens libraries, and declares tables of their functions.
//!
//! The signatures are cudarc's declarations: the compiler compares each line of a table with them.
//! But libraries are opened here, for three reasons. cudarc panics if a function is missing, as in
//! an older driver. It takes the first file of the right name on the loader's path, even if the
//! driver can't run its CUDA and a better one is in a Python package. And it returns statuses as a
//! Rust `enum`, which must not hold a number that a newer library has added; here they are plain
//! numbers.

use std::path::{Path, PathBuf};

/// A loaded shared library. It is never unloaded: threads and exit handlers that it started must
/// stay valid.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    /// The path as passed to the loader.
    pub path: PathBuf,
    library: &'static libloading::Library,
}

impl Opened {
    /// Opens a file, or a bare name through the system's loader; returns the loader's reason if
    /// that fails.
    pub fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: this runs the library's initialisers. The names are those of NVIDIA's libraries
        // (or of the tests' own), whose initialisers may run at any time and on any thread.
        let library = unsafe { libloading::Library::new(path) }.map_err(|error| {
            // The loader's own message, which names the file, is the source of libloading's error.
            let source = std::error::Error::source(&error).map(ToString::to_string);
            source.unwrap_or_else(|| error.to_string())
        })?;
        Ok(Self { path: path.to_path_buf(), library: Box::leak(Box::new(library)) })
    }

    /// Returns a function's address as the pointer type `F`.
    ///
    /// # Safety
    ///
    /// `F` must be a function pointer type of the signature that the library has for this name.
    pub unsafe fn function<F: Copy>(&self, symbol: &str) -> Option<F> {
        // SAFETY: guaranteed by the caller; the library is never unloaded.
        unsafe { self.library.get::<F>(symbol.as_bytes()) }.ok().map(|symbol| *symbol)
    }
}

/// Declares a table of functions. Those of `status` return 0 for success, and must be declared with
/// the same signature in the `declared` module of cudarc, which the caller imports; those of
/// `plain` are not declared there or return something else; those of `optional` may be missing from
/// the library.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        struct $table:ident: $status:ident;
        status { $(fn $name:ident($($type:ty),* $(,)?) $(as $symbol:literal)?;)* }
        plain { $(fn $plain:ident($($plain_type:ty),*) -> $result:ty;)* }
        optional { $(fn $optional:ident($($optional_type:ty),*);)* }
    ) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        #[derive(Clone, Copy)]
        pub(super) struct $table {
            $(pub $name: unsafe extern "C" fn($($type),*) -> ::core::ffi::c_uint,)*
            $(pub $plain: unsafe extern "C" fn($($plain_type),*) -> $result,)*
            $(pub $optional: Option<unsafe extern "C" fn($($optional_type),*) -> ::core::ffi::c_uint>,)*
        }

        impl $table {
            /// Returns the functions of a library, or the name of the first that it lacks.
            fn of(library: &$crate::engine::cuda::driver::library::Opened) -> ::std::result::Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let symbol = $crate::engine::cuda::driver::library::symbol!($name $($symbol)?);
                        // SAFETY: the signature is cudarc's, generated from NVIDIA's header; see
                        // the comparison below. A status is an `enum` in C, as wide as its numbers.
                        unsafe { library.function(symbol) }.ok_or(symbol)?
                    },)*
                    $($plain: {
                        let symbol = stringify!($plain);
                        // SAFETY: the signature is that of NVIDIA's documentation.
                        unsafe { library.function(symbol) }.ok_or(symbol)?
                    },)*
                    $($optional: {
                        // SAFETY: as above, if the library has the function.
                        unsafe { library.function(stringify!($optional)) }
                    },)*
                })
            }
        }

        const _: () = {
            $(let _: unsafe fn($($type),*) -> declared::$status = declared::$name;)*
            $(let _: unsafe fn($($optional_type),*) -> declared::$status = declared::$optional;)*
        };
    };
}

/// The name of a function in the library.
macro_rules! symbol {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident $symbol:literal) => {
        $symbol
    };
}

pub(super) use {functions, symbol};
