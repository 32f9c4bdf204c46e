//! Compiled kernels in the user's cache folder: compiling all of them takes seconds, reading them
//! milliseconds.

use std::fs;
use std::path::PathBuf;

use ring::digest::{Context, SHA256, digest};

use super::nvrtc::{Compiled, Nvrtc, Target, options};
use crate::engine::cuda::device::Element;
use crate::engine::cuda::kernels::Source;
use crate::error::Result;
use crate::files;

/// The first bytes of a file; increment the number if the format changes.
const MAGIC: &[u8; 8] = b"CLZCUB01";
const DIGEST: usize = 32;

/// A folder of compiled kernels.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// Returns the user's cache, or one without a folder, which stores nothing.
    pub fn of_user() -> Self {
        Self { folder: dirs::cache_dir().map(|folder| folder.join("cloze/cubins")) }
    }

    /// Returns a cache in another folder.
    #[cfg(test)]
    pub fn at(folder: PathBuf) -> Self {
        Self { folder: Some(folder) }
    }

    /// Returns the file of a GPU's choices of algorithms.
    pub(super) fn choices(&self, gpu: &str, library: &str) -> Option<PathBuf> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = format!("products {gpu} {library}").chars().map(plain).collect();
        Some(self.folder.as_ref()?.join(format!("{name}.json")))
    }

    /// Returns a compiled source, from the cache if its file is intact. A folder that can't be
    /// written to costs time, but is no error.
    pub fn compiled(
        &self,
        nvrtc: &Nvrtc,
        source: &Source,
        element: Element,
        target: Target,
    ) -> Result<Compiled> {
        let path = self.folder.as_ref().map(|folder| {
            let stem = source.name.trim_end_matches(".cu");
            let key = key(nvrtc, source, element, target);
            folder.join(format!("{stem}-{target}-{key}.cubin"))
        });
        let cached = path.as_ref().and_then(|path| fs::read(path).ok());
        if let Some(compiled) = cached.and_then(|bytes| unpack(&bytes)) {
            return Ok(compiled);
        }
        let compiled = nvrtc.compile(source.name, source.text, element, target)?;
        if let Some(path) = path {
            let _ = files::replace(&path, &pack(&compiled));
        }
        Ok(compiled)
    }
}

/// Returns a hash of everything that affects the compiler's output.
fn key(nvrtc: &Nvrtc, source: &Source, element: Element, target: Target) -> String {
    let mut context = Context::new(&SHA256);
    let mut add = |part: &[u8]| {
        // Lengths separate the parts.
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    };
    let (major, minor) = nvrtc.version();
    add(&major.to_le_bytes());
    add(&minor.to_le_bytes());
    add(nvrtc.build().as_bytes());
    add(source.text.as_bytes());
    options(element, target).iter().for_each(|option| add(option.as_bytes()));
    let digest = context.finish();
    digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a file's bytes: magic, digest of the rest, length of the log, the log, the image.
fn pack(compiled: &Compiled) -> Vec<u8> {
    let log = compiled.log.as_bytes();
    let mut rest = (log.len() as u64).to_le_bytes().to_vec();
    rest.extend_from_slice(log);
    rest.extend_from_slice(&compiled.image);
    [MAGIC, digest(&SHA256, &rest).as_ref(), &rest].concat()
}

/// Reverses [`pack`]; None if a byte is missing or wrong.
fn unpack(bytes: &[u8]) -> Option<Compiled> {
    let (expected, rest) = bytes.strip_prefix(MAGIC)?.split_at_checked(DIGEST)?;
    if digest(&SHA256, rest).as_ref() != expected {
        return None;
    }
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (log, image) = rest.split_at_checked(length)?;
    Some(Compiled { image: image.to_vec(), log: String::from_utf8(log.to_vec()).ok()? })
}

#[cfg(test)]
mod tests;
