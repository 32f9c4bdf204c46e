//! PNG files with a pixel density, so that pictures with finer pixels than the page are not shown larger.

use std::io::Cursor;

use ::png::{BitDepth, ColorType, Decoder, Encoder, EncodingError, PixelDimensions, Unit};

/// CSS pixels a metre: 96 to an inch.
const PAGE: f64 = 96.0 / 0.0254;

/// Encodes a picture in `rgb`, row by row, with `scale` pixels for each CSS pixel.
pub fn encode(
    rgb: &[u8],
    (width, height): (u32, u32),
    scale: u16,
) -> Result<Vec<u8>, EncodingError> {
    let density = (PAGE * f64::from(scale)).round() as u32;
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_pixel_dims(Some(PixelDimensions {
        xppu: density,
        yppu: density,
        unit: Unit::Meter,
    }));
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rgb)?;
    writer.finish()?;
    Ok(file)
}

/// Returns width and height on a page if the file's pixels are finer than CSS pixels. Coarser pictures are not
/// enlarged: many programs write 72 to an inch without meaning it.
pub fn size_on_page(file: &[u8]) -> Option<(u32, u32)> {
    let reader = Decoder::new(Cursor::new(file)).read_info().ok()?;
    let info = reader.info();
    let density = info.pixel_dims.filter(|dims| dims.unit == Unit::Meter)?;
    let size = |pixels: u32, density: u32| {
        let scale = f64::from(density) / PAGE;
        // The density of CSS pixels, rounded to a whole number, is not finer.
        (scale > 1.001).then(|| (f64::from(pixels) / scale).round().max(1.0) as u32)
    };
    Some((size(info.width, density.xppu)?, size(info.height, density.yppu)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fine_picture_is_as_large_as_a_plain_one() {
        let file = |scale: u16| encode(&[7; 6 * 4 * 3], (6, 4), scale).unwrap();
        assert_eq!(size_on_page(&file(2)), Some((3, 2)));
        assert_eq!(size_on_page(&file(1)), None);
        assert_eq!(size_on_page(&file(100)), Some((1, 1)));
    }

    #[test]
    fn a_file_that_is_no_png_has_no_size() {
        let file = encode(&[7; 3], (1, 1), 2).unwrap();
        for odd in [&[][..], b"\x89PNG", b"GIF89a", &file[..20]] {
            assert_eq!(size_on_page(odd), None);
        }
    }
}
