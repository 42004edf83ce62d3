//! RFC 4892: the server's identity in class CH.

use crate::conformance::stage::Stage;

#[test]
fn trap_29_identity_is_answered_only_if_the_operator_set_it() {
    let mut stage = Stage::with("z.test.", "* A 192.0.2.1");
    let questions = ["version.bind.", "VERSION.server.", "id.server.", "hostname.bind."];
    for name in questions {
        stage.check(&format!("{name} TXT class=CH"), "REFUSED");
    }
    stage.settings.version = Some("signpost".into());
    stage.settings.server_id = Some("ns1".into());
    for (name, text) in questions.into_iter().zip(["signpost", "signpost", "ns1", "ns1"]) {
        stage.check(&format!("{name} TXT class=CH"), &format!("NOERROR aa\n an {name} TXT {text}"));
        stage.check(&format!("{name} A class=CH"), "REFUSED");
        stage.check(&format!("{name} TXT"), "REFUSED");
    }
    stage.check("other.bind. TXT class=CH", "REFUSED");
}
