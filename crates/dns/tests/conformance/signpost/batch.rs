//! A batch answers as single queries do.

use signpost_dns::nameserver::{BATCH_MAX, Context, Exchange, Outcome, Scratch, respond_batch};

use crate::conformance::stage::{Stage, query, zone};

#[test]
fn a_batch_of_any_size_answers_as_one_by_one() {
    let zones = (0..50).map(|index| zone(&format!("shard{index}.test."), "* A 192.0.2.1\n* A 192.0.2.2\n x CNAME y"));
    let stage = Stage::new(zones);
    let mut queries = Vec::new();
    for index in 0..3 * BATCH_MAX + 7 {
        let name = format!("a{index}.shard{}.test.", index % 60);
        queries.push(match index % 5 {
            0 => query(&format!("{name} A")),
            1 => query(&format!("{name} AAAA noedns")),
            2 => query(&format!("x.shard{}.test. A", index % 60)),
            3 => b"short".to_vec(),
            _ => query("version.bind. TXT class=CH"),
        });
    }
    let snapshot = stage.db.snapshot();
    let context = Context { snapshot: &snapshot, settings: &stage.settings, stats: &stage.stats, limiter: None };
    let mut scratch = Scratch::new();
    let mut buffers = vec![[0; 1232]; queries.len()];
    let mut exchanges: Vec<Exchange<'_>> =
        queries.iter().zip(&mut buffers).map(|(query, buffer)| Exchange::new(query, stage.peer, buffer)).collect();
    // Twice with the same scratch: nothing of one batch shows in the next.
    for _ in 0..2 {
        respond_batch(&context, &mut scratch, &mut exchanges);
        for exchange in &exchanges {
            let alone = stage.respond(exchange.query);
            let batched = (exchange.outcome != Outcome::Drop).then(|| exchange.response.octets().to_vec());
            assert_eq!(batched, alone);
        }
    }
}
