//! Any octets as the frames of an HTTP/2 client, after its preface and settings. The properties: no panic; the same output and the same
//! state, regardless of how the octets are divided into reads; whole frames; and bounded memory.

#![no_main]

use std::sync::Arc;
use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use signpost_dns::transport::https::Site;
use signpost_dns::transport::https::http2::{Batch, Http2, PREFACE, Progress, QueryHandler};

/// The limits: of what the server makes before it writes, of one answer, and of the queries that are not whole.
const UNSENT_OCTETS_MAX: usize = 4_096;
const ANSWER_OCTETS_MAX: usize = 1 + 255 * 64;
const QUERY_OCTETS_MAX: usize = 128 * 1024;

/// Answers with as many octets as the query requests.
#[derive(Default)]
struct Handler(Vec<u8>);

impl QueryHandler for Handler {
    fn answer(&mut self, query: &[u8]) -> Option<&[u8]> {
        let length = 1 + 64 * usize::from(*query.first()?);
        self.0.resize(length, b'x');
        Some(&self.0[..length])
    }
}

fuzz_target!(|octets: &[u8]| {
    let Some((size, frames)) = octets.split_first() else { return };
    let input = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0], frames].concat();
    let whole = run(&input, input.len());
    for size in [1, 1 + usize::from(*size)] {
        assert!(run(&input, size) == whole, "reads of {size} octets have another result");
    }
});

/// Returns the output, the last progress, the octets that wait, and whether requests and responses do.
fn run(input: &[u8], size: usize) -> (Vec<u8>, Progress, (usize, usize), [bool; 2]) {
    let mut http = Http2::new(Arc::new(Site::default()), UNSENT_OCTETS_MAX);
    let (mut handler, moment) = (Handler::default(), Instant::now());
    let (mut received, mut output, mut progress) = (Vec::new(), Vec::new(), Progress::All);
    for read in input.chunks(size) {
        received.extend_from_slice(read);
        progress = Progress::Some;
        while progress == Progress::Some {
            let mut written = Vec::new();
            let batch = Batch { output: &mut written, handler: &mut handler, moment, second: 0 };
            let (octets, next) = http.receive(&received, batch);
            received.drain(..octets);
            progress = next;
            check_frames(&written);
            let (queries, responses) = http.held_octets();
            assert!(queries <= QUERY_OCTETS_MAX, "{queries}");
            assert!(responses < UNSENT_OCTETS_MAX + ANSWER_OCTETS_MAX, "{responses}");
            assert!(written.len() < 2 * (UNSENT_OCTETS_MAX + ANSWER_OCTETS_MAX) + 1_024, "{}", written.len());
            output.append(&mut written);
        }
        if progress != Progress::All {
            break;
        }
        assert!(received.len() < 9 + 16_384, "a whole frame");
    }
    let (request, response) = http.waits();
    (output, progress, http.held_octets(), [request.is_some(), response.is_some()])
}

/// The output consists of whole frames, none of which is larger than every client accepts.
fn check_frames(mut output: &[u8]) {
    while let Some((&[a, b, c, ..], rest)) = output.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        assert!(length <= 16_384, "{length}");
        output = &rest[length..];
    }
    assert!(output.is_empty(), "a frame is cut off");
}
