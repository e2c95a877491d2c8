//! Makes a small PNG of a PNG or JPEG, within the given size and upright. Never larger than the original.
//!
//! Example payload: `{"image": "<base64>", "max_width": 160, "max_height": 120}`

use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use leasehold_guest::prelude::*;
use serde::{Deserializer, Serializer};

/// What a decoded image may take: a photo of 12 megapixels fits, beside the payload, into the 64 MiB that a job has by
/// default (a progressive JPEG of that size takes twice as much, and ends at that limit). A few kilobytes of PNG can claim
/// thousands of times more.
const MAX_DECODED_BYTES: u64 = 40 << 20;
/// The decoder's own buffers on top.
const MAX_DECODER_BYTES: u64 = MAX_DECODED_BYTES + (8 << 20);
/// Larger ones are no thumbnails, and would not fit into a result.
const MAX_SIDE: u32 = 1024;

#[derive(Deserialize)]
struct Input {
    #[serde(deserialize_with = "from_base64")]
    image: Vec<u8>,
    max_width: u32,
    max_height: u32,
}

#[derive(Debug, Serialize)]
struct Output {
    #[serde(serialize_with = "to_base64")]
    image: Vec<u8>,
    width: u32,
    height: u32,
    bytes_in: usize,
    bytes_out: usize,
}

#[job]
fn thumbnail(_ctx: &Context, input: Input) -> Result<Output, Failure> {
    for (name, side) in [("max_width", input.max_width), ("max_height", input.max_height)] {
        if !(1..=MAX_SIDE).contains(&side) {
            return Err(Failure::dead(format!("{name} is {side}; a thumbnail's sides are 1 to {MAX_SIDE} pixels")));
        }
    }
    let (bytes_in, max_width, max_height) = (input.image.len(), input.max_width, input.max_height);
    let (original, orientation) = decode(input.image)?;
    let small = shrink(&original, orientation, max_width, max_height);
    let (width, height) = (small.width(), small.height());
    info!("{} x {} pixels became {width} x {height}", original.width(), original.height());
    let mut image = Vec::new();
    small.write_to(&mut Cursor::new(&mut image), ImageFormat::Png).or_dead("writing the thumbnail")?;
    Ok(Output { bytes_in, bytes_out: image.len(), image, width, height })
}

/// The pixels as they are stored, and how to turn them upright. Refuses by what the header claims, before there are any.
fn decode(bytes: Vec<u8>) -> Result<(DynamicImage, Orientation), Failure> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().or_dead("reading the image")?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODER_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().or_dead("reading the image's header")?;
    let ((width, height), claimed) = (decoder.dimensions(), decoder.total_bytes());
    if claimed > MAX_DECODED_BYTES {
        return Err(Failure::dead(format!(
            "image of {width} x {height} pixels takes {claimed} bytes decoded; the limit is {MAX_DECODED_BYTES} bytes"
        )));
    }
    let orientation = decoder.orientation().or_dead("reading the image's orientation")?;
    let image = DynamicImage::from_decoder(decoder).or_dead("decoding the image")?;
    Ok((image, orientation))
}

/// Turning comes last, when there is little left to turn; so the sides change places before.
fn shrink(original: &DynamicImage, orientation: Orientation, max_width: u32, max_height: u32) -> DynamicImage {
    let (max_width, max_height) = match orientation {
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH => {
            (max_height, max_width)
        }
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => (max_width, max_height),
    };
    let fits = original.width() <= max_width && original.height() <= max_height;
    let small = if fits { original.clone() } else { original.thumbnail(max_width, max_height) };
    // Sixteen bits a channel are lost on a thumbnail.
    let mut small = match small.color().has_alpha() {
        true => DynamicImage::from(small.into_rgba8()),
        false => DynamicImage::from(small.into_rgb8()),
    };
    small.apply_orientation(orientation);
    small
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64.decode(text).map_err(|error| serde::de::Error::custom(format_args!("this is not base64: {error}")))
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64.encode(bytes))
}

#[cfg(test)]
mod tests {
    use leasehold_guest::testing::{self, MockContext, Value, json};

    use super::*;

    const PHOTO: &[u8] = include_bytes!("../sample/rocket.jpg"); // 640 x 427
    const DRAWING: &[u8] = include_bytes!("../sample/chelsea.png"); // 451 x 300

    fn run(image: &[u8], max_width: u32, max_height: u32) -> Result<Value, Failure> {
        let payload = json!({ "image": BASE64.encode(image), "max_width": max_width, "max_height": max_height });
        testing::run(thumbnail, &MockContext::new(), payload)
    }

    fn decoded(result: &Value) -> DynamicImage {
        let png = BASE64.decode(result["image"].as_str().expect("a string")).expect("base64");
        assert_eq!(result["bytes_out"], png.len());
        image::load_from_memory_with_format(&png, ImageFormat::Png).expect("a PNG")
    }

    #[test]
    fn a_photo_becomes_small_and_stays_itself() {
        let result = run(PHOTO, 160, 160).expect("the sample is an image");
        assert_eq!((&result["width"], &result["height"]), (&json!(160), &json!(107)));
        assert_eq!(result["bytes_in"], PHOTO.len());
        let small = decoded(&result).into_rgb8();
        assert_eq!(small.dimensions(), (160, 107));
        // The mean color of a picture survives its shrinking.
        let original = image::load_from_memory(PHOTO).expect("the sample is an image").into_rgb8();
        for (small, original) in mean(&small).into_iter().zip(mean(&original)) {
            assert!((small - original).abs() < 2.0, "{small} is not {original}");
        }
    }

    fn mean(image: &image::RgbImage) -> [f64; 3] {
        let pixels = f64::from(image.width() * image.height());
        [0, 1, 2].map(|channel| image.pixels().map(|pixel| f64::from(pixel.0[channel])).sum::<f64>() / pixels)
    }

    #[test]
    fn the_tighter_side_decides() {
        let result = run(DRAWING, 1000, 100).expect("the sample is an image");
        assert_eq!((&result["width"], &result["height"]), (&json!(150), &json!(100)));
    }

    #[test]
    fn an_image_that_fits_is_not_blown_up() {
        let result = run(DRAWING, 1024, 1024).expect("the sample is an image");
        assert_eq!((&result["width"], &result["height"]), (&json!(451), &json!(300)));
    }

    #[test]
    fn a_picture_taken_sideways_is_turned_upright() {
        let result = run(&sideways(PHOTO), 100, 160).expect("the sample is an image");
        assert_eq!((&result["width"], &result["height"]), (&json!(100), &json!(150)));
    }

    /// The JPEG with an Exif segment of one entry: orientation 6, the camera was held upright.
    fn sideways(jpeg: &[u8]) -> Vec<u8> {
        let exif = b"\xff\xe1\0\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        [&jpeg[..2], exif, &jpeg[2..]].concat()
    }

    #[test]
    fn a_bomb_is_refused_by_its_header() {
        let mut bomb = DRAWING.to_vec();
        bomb[16..24].copy_from_slice(&[0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30]); // the header's width and height: 30000
        let checksum = crc32(&bomb[12..29]).to_be_bytes();
        bomb[29..33].copy_from_slice(&checksum);
        let wanted = "image of 30000 x 30000 pixels takes 2700000000 bytes decoded; the limit is 41943040 bytes";
        assert_eq!(run(&bomb, 10, 10), Err(Failure::dead(wanted)));
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1)))
        })
    }

    #[test]
    fn what_is_no_image_is_dead() {
        let failure = run(b"GIF89a, but not really", 10, 10).expect_err("this is no image");
        assert!(
            matches!(&failure, Failure::Dead { message } if message.starts_with("reading the image's header: ")),
            "{failure}"
        );
        let failure = run(&PHOTO[..1000], 10, 10).expect_err("this is no image");
        assert!(matches!(&failure, Failure::Dead { .. }), "{failure}");
    }

    #[test]
    fn a_payload_that_is_no_base64_says_where() {
        let payload = json!({ "image": "abc!", "max_width": 1, "max_height": 1 });
        let failure = testing::run(thumbnail, &MockContext::new(), payload).expect_err("this is no image");
        let message = failure.message().unwrap_or_default();
        assert!(message.contains("at image: this is not base64: Invalid symbol 33, offset 3"), "{message}");
    }

    #[test]
    fn sides_have_bounds() {
        assert_eq!(run(PHOTO, 0, 10), Err(Failure::dead("max_width is 0; a thumbnail's sides are 1 to 1024 pixels")));
        let wanted = Failure::dead("max_height is 9999; a thumbnail's sides are 1 to 1024 pixels");
        assert_eq!(run(PHOTO, 10, 9999), Err(wanted));
    }
}
