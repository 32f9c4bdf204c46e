//! Reads documents and splits them into sentences, and sentences into word pieces.

pub mod embedded;
pub mod pieces;
pub mod raw;
pub mod reader;
pub mod sections;
pub mod sentences;
pub mod vocabulary;
pub mod wordpiece;
pub mod words;

pub use reader::{Paragraph, Paragraphs};
pub use sentences::sentences;
pub use wordpiece::{Casing, Encoding, SpecialIds, WordPiece, other_vocabulary};
