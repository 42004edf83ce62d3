//! Readable causes of failed HTTP requests.

use tokio_rustls::rustls;

use signpost_runtime::causes::causes;
use signpost_runtime::trust::is_authority_itself;

/// Returns the innermost cause in readable form, including causes in TLS. `wanted` names the expected subject of the certificate,
/// as in "for another name than …". The text omits the URL, which can contain a password.
pub fn cause_text(error: reqwest::Error, wanted: &str) -> String {
    let error = error.without_url();
    let of_tls = causes(&error).find_map(|cause| tls_cause_text(cause, wanted));
    of_tls.or_else(|| causes(&error).last().map(ToString::to_string)).unwrap_or_default()
}

/// Returns the problem of the server's certificate, or of TLS.
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
            format!("the certificate is not valid for {wanted}")
        }
        UnknownIssuer => "the certificate is not signed by an authority that this machine trusts".to_owned(),
        Revoked => "the certificate is revoked".to_owned(),
        fault if is_authority_itself(fault) => {
            "the certificate is a CA certificate, not a server certificate: issue a server certificate with it, or \
             trust this certificate directly"
                .to_owned()
        }
        other => format!("the certificate was rejected: {other}"),
    };
    Some(cause_text)
}
