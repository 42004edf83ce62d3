//! Reading and writing zone files: one large file (octets per second), and a folder of 100,000 small ones as at start.
//!
//! The folder is made in a temporary directory and deleted at the end; each of its scans is timed once, since a second
//! first scan would be of files that the cache knows already in another way.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use signpost_dns::zone::Contents;
use signpost_dns::zonefile::folder::Folder;
use signpost_dns::zonefile::include::NoIncludes;
use signpost_dns::zonefile::read_zone;
use signpost_dns::zonefile::write::to_text;

const RECORDS: u32 = 200_000;
const ZONES: u32 = 100_000;

/// A zone with many names, of the kinds that large zones have.
fn large() -> Vec<u8> {
    let mut text = String::from(
        "$ORIGIN big.example.\n$TTL 300\n@ SOA ns1 admin 1 3600 600 86400 300\n@ NS ns1\nns1 A 192.0.2.1\n",
    );
    for number in 0..RECORDS / 4 {
        text += &format!(
            "host{number}\t3600\tIN\tA\t192.0.2.{}\n\tIN\tAAAA\t2001:db8::{number:x}\nweb{number} IN CNAME host{number}\n\
             txt{number} TXT \"v=spf1 ip4:192.0.2.0/24 -all\"\n",
            number % 256
        );
    }
    text.into_bytes()
}

fn small(number: u32) -> String {
    format!(
        "$ORIGIN shard{number}.example.\n$TTL 300\n@ IN SOA ns1.example. hostmaster.example. (\n 2026010101 ; serial\n 3600 600 \
         1209600 300 )\n IN NS ns1.example.\n IN NS ns2.example.\n* IN A 10.{}.{}.1\n IN A 10.{}.{}.2\n IN A 10.{}.{}.3\n",
        number >> 8 & 255,
        number & 255,
        number >> 8 & 255,
        number & 255,
        number >> 8 & 255,
        number & 255,
    )
}

fn read(text: &[u8]) -> Contents {
    let file: Arc<Path> = Path::new("bench.zone").into();
    read_zone(text, &file, None, &mut NoIncludes).contents.expect("the zone is right")
}

fn texts(c: &mut Criterion) {
    let text = large();
    let zone = read(&text);
    let mut group = c.benchmark_group("zonefile");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("read 200,000 records", |b| b.iter(|| black_box(read(&text))));
    group.throughput(Throughput::Bytes(to_text(&zone).len() as u64));
    group.bench_function("write 200,000 records", |b| b.iter(|| black_box(to_text(&zone))));
    let one = small(7);
    group.throughput(Throughput::Bytes(one.len() as u64));
    group.bench_function("read and check one shard", |b| b.iter(|| black_box(read(one.as_bytes()))));
    group.finish();
}

fn folder(_: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for number in 0..ZONES {
        std::fs::write(dir.path().join(format!("shard{number}.example.zone")), small(number))
            .expect("room for the files");
    }
    for threads in [1, 2] {
        let mut folder = Folder::new(dir.path(), threads);
        let scan = |folder: &mut Folder| {
            let start = Instant::now();
            let tally = folder.rescan(|zone| zone.record_count(), |_| {}).expect("the folder is there");
            (start.elapsed(), tally)
        };
        let (first, tally) = scan(&mut folder);
        assert_eq!(tally.served, ZONES as usize);
        let (again, tally) = scan(&mut folder);
        assert_eq!(tally.unchanged, ZONES as usize);
        let name = format!("shard{}.example.zone", threads * 100);
        std::fs::write(dir.path().join(name), small(threads as u32 * 100) + "x A 192.0.2.1\n").expect("room");
        let (one, tally) = scan(&mut folder);
        assert_eq!(tally.served, 1);
        println!(
            "folder of {ZONES} zones, {threads} threads: first scan {first:.2?}, nothing changed {again:.2?}, one changed {one:.2?}"
        );
    }
}

criterion_group!(benches, texts, folder);
criterion_main!(benches);
