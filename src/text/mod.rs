//! Reading documents, cutting them into sentences, and sentences into word pieces.
