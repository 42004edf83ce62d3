//! Random zones signed by BIND's tools, so that proofs of absence are compared too: NSEC, NSEC3, and NSEC3 with opt-out.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::zones::Zone;

/// Signs every second of `zones`, with one kind of chain after the other.
pub fn sign_some(zones: &mut [Zone]) {
    const CHAINS: [&[&str]; 3] = [&[], &["-3", "-"], &["-3", "-", "-A"]];
    let folder = TempDir::new().expect("a temporary directory");
    for (zone, chain) in zones.iter_mut().step_by(2).zip(CHAINS.iter().cycle()) {
        sign(zone, chain, folder.path());
    }
}

fn sign(zone: &mut Zone, chain: &[&str], folder: &Path) {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).current_dir(folder).args(arguments).output();
        let output =
            output.unwrap_or_else(|error| panic!("{program} is installed by the test command of the README: {error}"));
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {complaint}\n{}", zone.text);
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    // One key for all is enough: the answers are the same.
    let key = run("dnssec-keygen", &["-q", "-a", "ECDSAP256SHA256", "-f", "KSK", &zone.apex]);
    let dnskey = std::fs::read_to_string(folder.join(format!("{key}.key"))).expect("it was written");
    let unsigned = format!("{}{dnskey}", zone.text);
    std::fs::write(folder.join("unsigned"), unsigned).expect("written");
    let options = ["-q", "-P", "-z", "-O", "full", "-o", &zone.apex, "-f", "signed"];
    run("dnssec-signzone", &[&options, chain, &["unsigned", &key]].concat());
    zone.text = std::fs::read_to_string(folder.join("signed")).expect("it was written");
    zone.signed = true;
}
