//! Sixel pictures: <https://vt100.net/docs/vt3xx-gp/chapter14.html>.
//!
//! The crates for this bring 18 others, most of them for choosing the colours.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::io::Cursor;

use png::{ColorType, Decoder, Transformations};

/// The most colours of a picture.
const COLOURS: usize = 256;
/// Rows that one line of sixels draws.
const ROWS: usize = 6;
/// Pixels with less opacity are not drawn.
const OPAQUE: u8 = 128;

type Colour = [u8; 3];

/// Returns the text that draws a PNG file, which is `page` pixels wide on a page; `None` if the file is no PNG.
pub fn encode(file: &[u8], page: Option<u32>) -> Option<String> {
    let (width, pixels) = decode(file)?;
    let page = page.and_then(|page| usize::try_from(page).ok()).unwrap_or(width);
    let (width, pixels) = shrunk((width, pixels), width.checked_div(page)?.max(1))?;
    let mut counts: HashMap<Colour, usize> = HashMap::new();
    for colour in pixels.iter().flatten() {
        *counts.entry(*colour).or_default() += 1;
    }
    let (palette, indices) = palette(counts.into_iter().collect());
    let mut out = format!("\x1bP0;1;0q\"1;1;{width};{}", pixels.len() / width);
    for (index, colour) in palette.iter().enumerate() {
        let [red, green, blue] = colour.map(|part| (usize::from(part) * 100 + 127) / 255);
        // Writing to a string cannot fail.
        let _ = write!(out, "#{index};2;{red};{green};{blue}");
    }
    for band in pixels.chunks(width * ROWS) {
        let mut lines: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for (place, colour) in band.iter().enumerate() {
            if let Some(index) = colour.and_then(|colour| indices.get(&colour)) {
                let line = lines.entry(*index).or_insert_with(|| vec![0; width]);
                line[place % width] |= 1 << (place / width);
            }
        }
        for (index, line) in lines {
            let _ = write!(out, "#{index}");
            for run in line.chunk_by(|one, next| one == next) {
                let sixel = char::from(b'?' + run[0]);
                let _ = write!(out, "!{}{sixel}", run.len());
            }
            out.push('$');
        }
        out.push('-');
    }
    Some(out + "\x1b\\")
}

/// Returns the width and the pixels of a PNG file, with opacities.
fn decode(file: &[u8]) -> Option<(usize, Vec<(Colour, u8)>)> {
    let mut decoder = Decoder::new(Cursor::new(file));
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().ok()?;
    let mut bytes = vec![0; reader.output_buffer_size()?];
    let frame = reader.next_frame(&mut bytes).ok()?;
    let samples = frame.color_type.samples();
    let pixel = |part: &[u8]| match (frame.color_type, part) {
        (ColorType::Rgb, &[r, g, b]) => ([r, g, b], u8::MAX),
        (ColorType::Rgba, &[r, g, b, opacity]) => ([r, g, b], opacity),
        (_, &[grey, opacity]) => ([grey; 3], opacity),
        (_, part) => ([part[0]; 3], u8::MAX),
    };
    let pixels = bytes[..frame.buffer_size()].chunks_exact(samples).map(pixel).collect();
    Some((usize::try_from(frame.width).ok()?, pixels))
}

/// Replaces squares of pixels by their average, and pixels that are not opaque by none.
fn shrunk(
    (width, pixels): (usize, Vec<(Colour, u8)>),
    scale: usize,
) -> Option<(usize, Vec<Option<Colour>>)> {
    let (columns, rows) = (width / scale, pixels.len().checked_div(width)? / scale);
    let mut out = Vec::with_capacity(columns * rows);
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let lines = (0..scale).map(|line| (row * scale + line) * width + column * scale);
        let square = lines.flat_map(|start| &pixels[start..start + scale]);
        let opaque: Vec<_> = square.filter(|pixel| pixel.1 >= OPAQUE).map(|it| (it.0, 1)).collect();
        out.push((opaque.len() * 2 > scale * scale).then(|| average(&opaque)));
    }
    (!out.is_empty()).then_some((columns, out))
}

/// Chooses the colours by median cut, and gives each of the picture's colours its place among them.
fn palette(counts: Vec<(Colour, usize)>) -> (Vec<Colour>, HashMap<Colour, usize>) {
    let mut groups = vec![counts];
    groups.retain(|group| !group.is_empty());
    while groups.len() < COLOURS {
        let widest = groups.iter().enumerate().max_by_key(|(_, group)| widest(group).0);
        let Some((index, (1.., part))) = widest.map(|(index, group)| (index, self::widest(group)))
        else {
            break;
        };
        let mut group = groups.swap_remove(index);
        group.sort_by_key(|(colour, _)| colour[part]);
        let upper = group.split_off(group.len() / 2);
        groups.extend([group, upper]);
    }
    let places = groups.iter().enumerate();
    let places = places.flat_map(|(index, group)| group.iter().map(move |it| (it.0, index)));
    (groups.iter().map(|group| average(group)).collect(), places.collect())
}

/// Returns the largest difference between the colours of a group, and in which of their parts it is.
fn widest(group: &[(Colour, usize)]) -> (u8, usize) {
    let range = |part: usize| {
        let values = group.iter().map(|(colour, _)| colour[part]);
        (values.clone().max().unwrap_or(0) - values.min().unwrap_or(0), part)
    };
    (0..3).map(range).max().unwrap_or_default()
}

fn average(group: &[(Colour, usize)]) -> Colour {
    let count = group.iter().map(|(_, count)| count).sum::<usize>().max(1);
    [0, 1, 2].map(|part| {
        let sum: usize =
            group.iter().map(|(colour, count)| usize::from(colour[part]) * count).sum();
        // An average is no larger than the largest byte.
        ((sum + count / 2) / count) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: ColorType, width: u32, data: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let rows = data.len() / kind.samples() / width as usize;
        let mut encoder = png::Encoder::new(&mut file, width, rows as u32);
        encoder.set_color(kind);
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        file
    }

    #[test]
    fn a_picture_is_drawn_in_bands_of_six_rows() {
        let data: Vec<u8> = [[255, 0, 0].repeat(12), [0, 0, 255].repeat(2)].concat();
        let drawn = encode(&file(ColorType::Rgb, 2, &data), None).unwrap();
        let (head, rest) = drawn.split_once("#0;").unwrap();
        assert_eq!(head, "\x1bP0;1;0q\"1;1;2;7");
        assert!(rest.contains("2;100;0;0") && rest.contains("2;0;0;100"), "{rest}");
        assert!(rest.contains("!2~$-#") && rest.ends_with("!2@$-\x1b\\"), "{rest}");
    }

    #[test]
    fn what_is_transparent_is_not_drawn_and_fine_pixels_are_merged() {
        let drawn = encode(&file(ColorType::GrayscaleAlpha, 2, &[255, 255, 9, 0]), None).unwrap();
        assert!(drawn.contains("\"1;1;2;1#0;2;100;100;100#0!1@!1?$-"), "{drawn}");
        let merged = encode(&file(ColorType::Grayscale, 2, &[0, 100, 100, 200]), Some(1)).unwrap();
        assert!(merged.contains("\"1;1;1;1#0;2;39;39;39#0!1@$-"), "{merged}");
    }

    #[test]
    fn many_colours_become_256_near_ones_and_other_files_nothing() {
        let counts: Vec<_> = (0..=u16::MAX).map(|n| ([(n >> 8) as u8, n as u8, 0], 1)).collect();
        let (palette, places) = palette(counts);
        assert_eq!(palette.len(), COLOURS);
        for (colour, place) in places {
            let apart = colour.iter().zip(palette[place]).map(|(a, b)| a.abs_diff(b)).max();
            assert!(apart <= Some(16), "{colour:?}");
        }
        assert_eq!(encode(b"GIF89a", None), None);
    }
}
