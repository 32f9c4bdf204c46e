//! Reading documents, cutting them into sentences, and sentences into word pieces.

pub mod embedded;
pub mod files;
pub mod raw;
pub mod sentences;
pub mod vocabulary;
pub mod wordpiece;

pub use files::{Paragraph, Paragraphs};
pub use sentences::sentences;
pub use wordpiece::{Casing, Encoding, SpecialIds, WordPiece};
