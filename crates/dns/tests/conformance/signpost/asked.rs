//! Aliases in shards' zones, from which former names are made, have a mark with the time of the last query.

use std::sync::Arc;

use signpost_dns::wire::Name;
use signpost_dns::zone::last_queried::LastQueried;
use signpost_dns::zone::qname::{Qname, wildcard_hash};

use crate::conformance::stage::{Stage, zone};

const ZONE: &str = "* A 192.0.2.1\n moved CNAME x.elsewhere.\n *.moved CNAME x.elsewhere.\n here A 192.0.2.2\n \
                    chain CNAME moved\n other CNAME x.elsewhere.";

#[test]
fn a_question_that_an_alias_answers_is_marked() {
    let hash = |name: &str| Qname::of(name.parse::<Name>().expect("a name").as_wire()).hash(0);
    let moved = hash("moved.shard.test.");
    let places = [("moved", moved), ("below", wildcard_hash(moved)), ("static", hash("moved.static.test."))];
    for (question, marked) in [
        ("moved.shard.test. A", vec!["moved"]),
        ("MOVED.Shard.test. AAAA noedns", vec!["moved"]),
        ("moved.shard.test. TXT", vec!["moved"]),
        ("a.b.moved.shard.test. A", vec!["below"]),
        ("chain.shard.test. A", vec!["moved"]),
        // A query for the alias itself does not follow it.
        ("moved.shard.test. CNAME", vec![]),
        ("moved.shard.test. ANY", vec![]),
        ("here.shard.test. A", vec![]),
        ("any.shard.test. A", vec![]),
        // An alias without a place, and one in a zone of no shard.
        ("other.shard.test. A", vec![]),
        ("moved.static.test. A", vec![]),
    ] {
        let shard = zone("shard.test.", ZONE);
        shard.set_shard();
        let mut stage = Stage::new([shard, zone("static.test.", ZONE)]);
        let unmarked = stage.ask(question);
        let asked = Arc::new(LastQueried::new(9));
        places.iter().for_each(|(_, hash)| asked.place(*hash).expect("there is room"));
        stage.settings.asked = Some(Arc::clone(&asked));
        assert_eq!(stage.ask(question), unmarked, "{question}: the answer is the same");
        let found: Vec<&str> =
            places.iter().filter(|(_, hash)| asked.last(*hash) == Some(1_800_000_000)).map(|(name, _)| *name).collect();
        assert_eq!(found, marked, "{question}");
        assert!(places.iter().all(|(_, hash)| asked.last(*hash).is_none_or(|second| second == stage.peer.now)));
    }
}
