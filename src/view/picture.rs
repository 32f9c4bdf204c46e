//! Pictures of charts: an SVG that plotters draws, a PNG, a file of either kind.
//!
//! The PNG of a chart is its rendered SVG, so the two can't differ. The font is part of the crate, so a PNG
//! is the same on every machine, even without fonts.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::fontdb::{Database, Source};
use resvg::usvg::{Options, Tree};

use super::png::encode;
use super::style::{self, INK, TEXT_SIZE, TITLE_SIZE};
use crate::error::{Error, Result};
use crate::files::write_atomic;

/// Pixels of a PNG for each CSS pixel, for sharpness on fine screens and in print.
const SCALE: u16 = 2;
/// Most pixels of a PNG: a quarter of a gigabyte of memory.
const MOST: u64 = 64 << 20;
/// A PNG has a white page, and so an ink as dark as that of a light notebook.
const PAGE: Color = Color::WHITE;
const ON_PAGE: &str = "svg { color: #212121 }";

/// DejaVu Sans: Latin, Greek, Cyrillic, Arabic and mathematics. Other letters become boxes.
static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_source(Source::Binary(Arc::new(dejavu::sans::regular())));
    // The only font, whatever family a picture names.
    fonts.set_sans_serif_family("DejaVu Sans");
    Arc::new(fonts)
});

/// A drawing area that becomes part of an SVG.
pub type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The result of drawing.
pub type Outcome<T> = std::result::Result<T, DrawingAreaErrorKind<std::io::Error>>;

/// Plotters draws at whole pixels, which makes curves jagged: curves are drawn on a canvas enlarged by this
/// factor and scaled down again.
pub const FINE: i32 = 16;

/// Returns the SVG of what `draw` draws on a canvas of `size`; `label` is the text for screen readers.
pub fn svg<D>(size: (u32, u32), label: &str, draw: D) -> String
where
    D: for<'a> FnOnce(&Canvas<'a>) -> Outcome<()>,
{
    style::finish(&drawn(size, draw).0, label)
}

/// Returns the SVG of what `draw` draws, with curves above it: the function that `draw` returns draws them on
/// a canvas [`FINE`] times as large.
pub fn svg_with_fine<D, F>(size: (u32, u32), label: &str, draw: D) -> String
where
    D: for<'a> FnOnce(&Canvas<'a>) -> Outcome<F>,
    F: for<'a> FnOnce(&Canvas<'a>) -> Outcome<()>,
{
    let (svg, draw_fine) = drawn(size, draw);
    let large = (size.0 * FINE as u32, size.1 * FINE as u32);
    let (curves, ()) = drawn(large, draw_fine);
    // Without the root element, whose tags are the first and the last.
    let curves = curves.split_once('>').map_or("", |(_, rest)| rest);
    let curves = curves.trim_end().trim_end_matches("</svg>");
    let scale = 1.0 / f64::from(FINE);
    let group = format!("<g transform=\"scale({scale})\">{curves}</g>\n</svg>");
    let whole = svg.trim_end().trim_end_matches("</svg>").to_owned() + &group;
    style::finish(&whole, label)
}

/// Returns the SVG of plotters and the result of `draw`.
fn drawn<D, T>(size: (u32, u32), draw: D) -> (String, T)
where
    D: for<'a> FnOnce(&Canvas<'a>) -> Outcome<T>,
{
    let mut svg = String::new();
    let result = {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        // Drawing into a string can't fail: the backend's only errors are those of files.
        let result = draw(&root).expect("an SVG in memory");
        root.present().expect("an SVG in memory");
        result
    };
    (svg, result)
}

/// Writes a picture's title in its upper left corner.
pub fn title(root: &Canvas<'_>, title: &str) -> Outcome<()> {
    let style = style::text(TITLE_SIZE, INK, HPos::Left, VPos::Top);
    root.draw(&Text::new(title.to_owned(), (14, 10), style))
}

/// Writes a text whose left end, centre or right end, as `h` says, is at `at`.
pub fn label(root: &Canvas<'_>, text: &str, at: (i32, i32), h: HPos) -> Outcome<()> {
    let style = style::text(TEXT_SIZE, INK, h, VPos::Center);
    root.draw(&Text::new(text.to_owned(), at, style))
}

/// Implements PNG, file and view in a cell for a picture with the methods `svg` and `text`.
macro_rules! shown_and_saved {
    ($picture:ty) => {
        impl $picture {
            /// Returns the bytes of a PNG file: on white, with two pixels for each of the SVG's.
            ///
            /// # Errors
            /// If it has more than 67 million pixels.
            pub fn png(&self) -> $crate::error::Result<Vec<u8>> {
                $crate::view::picture::png(&self.svg())
            }

            /// Writes the picture to `path`, which ends in `.svg` or `.png`.
            ///
            /// # Errors
            /// If the name ends otherwise or the file can't be written.
            pub fn save(&self, path: impl AsRef<std::path::Path>) -> $crate::error::Result<()> {
                $crate::view::picture::save(&self.svg(), path.as_ref())
            }
        }

        impl $crate::view::display::Show for $picture {
            fn content(&self) -> $crate::view::display::Content {
                let svg = $crate::view::style::figure(&self.svg());
                $crate::view::display::Content::html(svg).with_text(self.text())
            }
        }
    };
}
pub(super) use shown_and_saved;

/// Returns the bytes of a PNG file of an SVG.
pub fn png(svg: &str) -> Result<Vec<u8>> {
    let failed = |why: String| Error::Failed(format!("no PNG can be made of this picture: {why}"));
    let options = Options {
        fontdb: FONTS.clone(),
        style_sheet: Some(ON_PAGE.to_owned()),
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let size = tree.size().to_int_size();
    let mut pixels = size
        .scale_by(f32::from(SCALE))
        .filter(|size| u64::from(size.width()) * u64::from(size.height()) <= MOST)
        .and_then(|size| Pixmap::new(size.width(), size.height()))
        .ok_or_else(|| {
            let (width, height) = (size.width(), size.height());
            failed(format!("{width}×{height} are too many pixels; an SVG may be as large"))
        })?;
    pixels.fill(PAGE);
    let scale = Transform::from_scale(f32::from(SCALE), f32::from(SCALE));
    resvg::render(&tree, scale, &mut pixels.as_mut());
    // Every pixel is opaque, because the page is.
    let rgb = pixels.pixels().iter();
    let rgb = rgb.flat_map(|pixel| [pixel.red(), pixel.green(), pixel.blue()]);
    let rgb: Vec<u8> = rgb.collect();
    encode(&rgb, (pixels.width(), pixels.height()), SCALE)
        .map_err(|error| failed(error.to_string()))
}

/// Writes an SVG to a file of the kind that its name states.
pub fn save(svg: &str, path: &Path) -> Result<()> {
    let bytes = match kind(path)? {
        Kind::Svg => svg.as_bytes().to_vec(),
        Kind::Png => png(svg)?,
    };
    write_atomic(path, &bytes)
}

/// The kind of a picture's file.
pub enum Kind {
    Svg,
    Png,
}

/// Returns the kind that a file's name states; fails if it states none.
pub fn kind(path: &Path) -> Result<Kind> {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    match ending.to_ascii_lowercase().as_str() {
        "svg" => Ok(Kind::Svg),
        "png" => Ok(Kind::Png),
        _ => {
            let message = "a picture is written to a file that ends in .svg or .png";
            Err(Error::file(path, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::view::png::size_on_page;
    use crate::view::{BarChart, Flow, HeatMap, LineChart, RooflineChart, Scatter, Step, StepMap};

    fn chart() -> LineChart {
        LineChart::new("Loss — größer als λ")
            .axes("step", "loss")
            .line("training", &[(0.0, 9.0), (100.0, 4.0)])
            .line("held out", &[(0.0, 9.1), (100.0, 5.0)])
            .reference("ln V", 9.0)
    }

    fn decoded(png: &[u8]) -> Pixmap {
        Pixmap::decode_png(png).unwrap()
    }

    /// Counts the pixels of a part of the picture that are darker than the series and the grid.
    fn inked(pixels: &Pixmap, columns: std::ops::Range<u32>, rows: std::ops::Range<u32>) -> usize {
        let places = rows.flat_map(|y| columns.clone().map(move |x| (x, y)));
        let dark = |(x, y): &(u32, u32)| {
            let pixel = pixels.pixel(*x, *y).unwrap();
            pixel.red().max(pixel.green()).max(pixel.blue()) < 0x60
        };
        places.filter(dark).count()
    }

    #[test]
    fn a_png_is_the_picture_twice_as_large_on_white() {
        let pixels = decoded(&chart().png().unwrap());
        assert_eq!((pixels.width(), pixels.height()), (1440, 720));
        assert_eq!(size_on_page(&chart().png().unwrap()), Some((720, 360)));
        let colours: HashSet<[u8; 4]> =
            pixels.pixels().iter().map(|p| [p.red(), p.green(), p.blue(), p.alpha()]).collect();
        assert!(colours.len() > 100, "{}", colours.len());
        for index in 0..2 {
            let RGBColor(red, green, blue) = style::series(index);
            assert!(colours.contains(&[red, green, blue, 255]), "series {index}");
        }
        assert!(colours.iter().all(|colour| colour[3] == 255));
        assert_eq!(pixels.pixel(1439, 0).unwrap().red(), 255);
    }

    #[test]
    fn texts_are_drawn_without_fonts_of_the_machine() {
        assert_eq!(FONTS.len(), 1);
        let pixels = decoded(&chart().png().unwrap());
        for (what, columns, rows) in [
            ("title", 28..400, 10..60),
            ("legend", 86..200, 66..100),
            ("title of the vertical axis", 10..46, 200..500),
            ("numbers of the vertical axis", 90..140, 120..620),
            ("numbers of the horizontal axis", 140..1300, 632..668),
            ("title of the horizontal axis", 500..1000, 675..710),
            ("reference", 1320..1440, 100..700),
        ] {
            let dots = inked(&pixels, columns, rows);
            assert!(dots > 40, "{what}: {dots}");
        }
    }

    #[test]
    fn every_kind_of_picture_is_rendered() {
        let bars = BarChart::new("Pieces").bar("##s", 10.5).bar("the", 40.0);
        let heat = HeatMap::new("Attention", &[1.0, 0.0, -1.0, 0.5], 2)
            .labels(&["a", "b"], &["[CLS]", "<x & y>"]);
        let flow = Flow::new("Layer", "x").step("norm", "");
        let plot = Scatter::new("Words").point("days", "monday", 0.0, 1.0);
        let map = StepMap::new("The course").step(Step::default());
        let roof = RooflineChart::new("GPU", 4e12, 800e12);
        for (png, kind) in [
            (bars.png(), "bars"),
            (heat.png(), "heat map"),
            (flow.png(), "flow"),
            (plot.png(), "scatter plot"),
            (map.png(), "step map"),
            (roof.png(), "roofline"),
        ] {
            let pixels = decoded(&png.unwrap());
            let title = inked(&pixels, 28..400, 10..60);
            assert!(title > 40, "{kind}: {title}");
        }
    }

    #[test]
    fn the_name_of_a_file_decides_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let saved = |name: &str| {
            let path = folder.path().join(name);
            chart().save(&path).map(|()| std::fs::read(&path).unwrap())
        };
        assert!(saved("a.svg").unwrap().starts_with(b"<svg "));
        assert_eq!(saved("a.PNG").unwrap(), chart().png().unwrap());
        for name in ["a.gif", "a"] {
            let error = saved(name).unwrap_err().to_string();
            assert!(error.contains(&format!("{name}: ")), "{error}");
            assert!(error.contains(".svg or .png"), "{error}");
            assert!(!folder.path().join(name).exists());
        }
        assert!(saved("made/a.svg").is_ok(), "a missing folder is created");
        assert!(chart().save(folder.path().join("a.svg/below.png")).is_err());
    }

    #[test]
    fn characters_that_xml_forbids_are_replaced() {
        let odd = LineChart::new("a\u{0}b\u{1b}c\u{ffff}").line("<&\">", &[(0.0, 1.0)]);
        assert!(odd.png().is_ok());
    }

    #[test]
    fn a_picture_that_is_too_large_is_an_error() {
        let tall = HeatMap::new("tall", &[1.0; 5000], 1);
        let error = tall.png().unwrap_err().to_string();
        assert!(error.contains("720×") && error.contains("SVG"), "{error}");
    }
}
