//! Compiled kernels, kept in the user's cache folder: compiling all takes seconds, reading them
//! milliseconds.

use std::fs;
use std::path::PathBuf;

use ring::digest::{Context, SHA256, digest};

use super::nvrtc::{Compiled, Nvrtc, Target, options};
use crate::engine::cuda::device::Element;
use crate::engine::cuda::kernels::Source;
use crate::error::Result;
use crate::files;

/// What a file begins with; another number where its form changes.
const MAGIC: &[u8; 8] = b"CLZCUB01";
const DIGEST: usize = 32;

/// A folder of compiled kernels.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// That of the user; nothing is kept where the user has none.
    pub fn of_user() -> Self {
        Self {
            folder: dirs::cache_dir().map(|folder| folder.join("cloze/cubins")),
        }
    }

    /// Another folder.
    #[cfg(test)]
    pub fn at(folder: PathBuf) -> Self {
        Self {
            folder: Some(folder),
        }
    }

    /// A source compiled: as it was kept, if it was and is whole, else anew. A folder that can't be
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
        let kept = path.as_ref().and_then(|path| fs::read(path).ok());
        if let Some(compiled) = kept.and_then(|bytes| unpack(&bytes)) {
            return Ok(compiled);
        }
        let compiled = nvrtc.compile(source.name, source.text, element, target)?;
        if let Some(path) = path {
            let _ = files::replace(&path, &pack(&compiled));
        }
        Ok(compiled)
    }
}

/// Of everything that makes a difference to what the compiler makes.
fn key(nvrtc: &Nvrtc, source: &Source, element: Element, target: Target) -> String {
    let mut context = Context::new(&SHA256);
    let mut add = |part: &[u8]| {
        // Lengths keep parts apart.
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    };
    let (major, minor) = nvrtc.version();
    add(&major.to_le_bytes());
    add(&minor.to_le_bytes());
    add(source.text.as_bytes());
    options(element, target)
        .iter()
        .for_each(|option| add(option.as_bytes()));
    let digest = context.finish();
    digest.as_ref()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A file's bytes: magic, digest of the rest, length of the log, the log, the image.
fn pack(compiled: &Compiled) -> Vec<u8> {
    let log = compiled.log.as_bytes();
    let mut rest = (log.len() as u64).to_le_bytes().to_vec();
    rest.extend_from_slice(log);
    rest.extend_from_slice(&compiled.image);
    [MAGIC, digest(&SHA256, &rest).as_ref(), &rest].concat()
}

/// What [`pack`] packed; None where a byte is missing or not as it was.
fn unpack(bytes: &[u8]) -> Option<Compiled> {
    let (told, rest) = bytes.strip_prefix(MAGIC)?.split_at_checked(DIGEST)?;
    if digest(&SHA256, rest).as_ref() != told {
        return None;
    }
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (log, image) = rest.split_at_checked(length)?;
    Some(Compiled {
        image: image.to_vec(),
        log: String::from_utf8(log.to_vec()).ok()?,
    })
}

#[cfg(test)]
mod tests;
