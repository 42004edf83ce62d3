//! Why a request over HTTP came to nothing, in words for people.

use tokio_rustls::rustls;

use signpost_runtime::trust::is_authority_itself;

/// The innermost cause, which is what people need; of TLS in words. `wanted` says which name the certificate is to be for, as in
/// "for another name than …". Without the URL, which may hold a password.
pub fn cause_text(error: reqwest::Error, wanted: &str) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    loop {
        if let Some(cause_text) = tls_cause_text(cause, wanted) {
            return cause_text;
        }
        // An I/O error holds another one that is no source of it.
        let held = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        match held.map(|held| held as &dyn std::error::Error).or(cause.source()) {
            Some(source) => cause = source,
            None => return cause.to_string(),
        }
    }
}

/// What is wrong with the certificate that was shown, or with TLS.
fn tls_cause_text(error: &(dyn std::error::Error + 'static), wanted: &str) -> Option<String> {
    let error = error.downcast_ref::<rustls::Error>()?;
    let rustls::Error::InvalidCertificate(fault) = error else { return Some(format!("TLS: {error}")) };
    use rustls::CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext, Revoked,
        UnknownIssuer,
    };
    let cause_text = match fault {
        Expired | ExpiredContext { .. } => "the certificate has expired".to_owned(),
        NotValidYet | NotValidYetContext { .. } => "the certificate is not valid yet".to_owned(),
        NotValidForName | NotValidForNameContext { .. } => {
            format!("the certificate is for another name than {wanted}")
        }
        UnknownIssuer => "no authority that this machine trusts vouches for the certificate".to_owned(),
        Revoked => "the certificate is revoked".to_owned(),
        fault if is_authority_itself(fault) => {
            "the certificate is an authority's own, made for signing and not for a server: let it sign another one, or trust this \
             very one"
                .to_owned()
        }
        other => format!("the certificate is refused: {other}"),
    };
    Some(cause_text)
}
