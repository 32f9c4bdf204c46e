//! Git's large file storage: the server names an address for each object that it lacks, in one piece or
//! in parts (git-lfs, docs/api/batch.md, and the Hub's transfer "multipart").

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use ureq::http::{Method, header};

use crate::download::{TransferBar, ask, upload_part};
use crate::error::Result;

use super::files::ModelFile;
use super::{Changed, Content, Target};

/// The type of the protocol's messages.
const LFS: &str = "application/vnd.git-lfs+json";

#[derive(Deserialize)]
struct Batch {
    objects: Vec<Object>,
}

/// An object, with what is to be done with it.
#[derive(Deserialize)]
struct Object {
    oid: String,
    /// None if the server has the object.
    actions: Option<Actions>,
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    message: String,
}

#[derive(Deserialize)]
struct Actions {
    upload: Option<Action>,
    verify: Option<Action>,
}

#[derive(Deserialize)]
struct Action {
    href: String,
    /// Headers of the request; for parts, their length under `chunk_size` and their addresses under
    /// their numbers.
    header: Option<BTreeMap<String, Value>>,
}

impl Target<'_> {
    /// Stores the content of files, by their SHA-256, unless the server has it.
    pub(super) fn store(&self, files: &[Changed]) -> Result<()> {
        let objects =
            files.iter().map(|(file, content)| json!({"oid": content.hash(), "size": file.size}));
        let request = json!({
            "operation": "upload",
            "transfers": ["basic", "multipart"],
            "hash_algo": "sha256",
            "ref": {"name": self.id.revision},
            "objects": objects.collect::<Vec<_>>(),
        });
        let url = format!("{}/{}.git/info/lfs/objects/batch", self.hub.endpoint, self.id.name);
        let batch: Batch = self.post_json(&url, LFS, &request)?;
        for object in batch.objects {
            let found = files.iter().find(|(_, content)| content.hash() == object.oid);
            let Some((file, content)) = found else {
                return Err(self.failed("its storage names an object that nobody asked for"));
            };
            if let Some(fault) = object.error {
                return Err(self.failed(&format!("{}: {}", file.name, fault.message)));
            }
            let Some(actions) = object.actions else { continue };
            if let Some(action) = &actions.upload {
                self.transfer(file, content, action)?;
            }
            if let Some(action) = &actions.verify {
                let object = json!({"oid": content.hash(), "size": file.size});
                let _: Value = self.post_json(&action.href, LFS, &object)?;
            }
        }
        Ok(())
    }

    /// Sends the content of a file to the storage server, which gets no token: its addresses are signed.
    fn transfer(&self, file: &ModelFile, content: &Content, action: &Action) -> Result<()> {
        let mut bar = TransferBar::new(&file.name, Some(file.size));
        let empty = BTreeMap::new();
        let headers = action.header.as_ref().unwrap_or(&empty);
        let Some(chunk) = headers.get("chunk_size") else {
            let request = || {
                let texts = headers.iter().filter_map(|(name, text)| Some((name, text.as_str()?)));
                let request = ask(Method::PUT, &action.href, None);
                texts.fold(request, |request, (name, text)| request.header(name, text))
            };
            upload_part(request, &file.path, 0..file.size, &mut bar)?;
            bar.done();
            return Ok(());
        };
        let chunk = chunk.as_u64().or_else(|| chunk.as_str()?.parse().ok());
        let addresses: BTreeMap<u64, &str> = headers
            .iter()
            .filter_map(|(number, address)| Some((number.parse().ok()?, address.as_str()?)))
            .collect();
        let chunk = match chunk.filter(|&chunk| chunk > 0) {
            Some(chunk) if file.size.div_ceil(chunk) == addresses.len() as u64 => chunk,
            _ => {
                let message = format!("{}: the parts that its storage names don't fit", file.name);
                return Err(self.failed(&message));
            }
        };
        let mut parts = Vec::new();
        for (number, address) in (1_u64..).zip(addresses.into_values()) {
            let start = (number - 1) * chunk;
            let part = start..file.size.min(start + chunk);
            let request = || ask(Method::PUT, address, None);
            let answer = upload_part(request, &file.path, part, &mut bar)?;
            let etag = answer.get(header::ETAG).and_then(|etag| etag.to_str().ok());
            let Some(etag) = etag else {
                let message = format!("{}: its storage gave part {number} no ETag", file.name);
                return Err(self.failed(&message));
            };
            parts.push(json!({"partNumber": number, "etag": etag}));
        }
        let object = json!({"oid": content.hash(), "parts": parts});
        let _: Value = self.post_json(&action.href, LFS, &object)?;
        bar.done();
        Ok(())
    }
}
