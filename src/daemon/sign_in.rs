//! The clients with which users sign in at identity providers, according to `jwt-issuer`.

use std::sync::Arc;

use crate::config::Settings;
use crate::oidc::{self, Registration};
use signpost_apiserver::auth::jwt::{IssuerSettings, SignIn};
use signpost_runtime::tls;

/// Returns the clients of command lines.
pub fn of_command_lines(settings: &Settings) -> Result<Vec<Registration>, tls::Error> {
    sign_ins(settings).map(|(issuer, sign_in)| registration(issuer, sign_in, &sign_in.cli_client_id)).collect()
}

/// Returns the clients of the dashboard.
pub fn providers(settings: &Settings) -> Result<Vec<Arc<oidc::Client>>, super::Error> {
    let provider = |(issuer, sign_in): (&IssuerSettings, &SignIn)| {
        let registration = registration(issuer, sign_in, &sign_in.client_id)?;
        let client = oidc::Client::new(registration, sign_in.secret_file.clone());
        client.map(Arc::new).map_err(|error| super::Error::Failed(format!("jwt-issuer: {error}")))
    };
    sign_ins(settings).map(provider).collect()
}

fn sign_ins(settings: &Settings) -> impl Iterator<Item = (&IssuerSettings, &SignIn)> {
    settings.jwt_issuer.iter().filter_map(|issuer| Some((issuer, issuer.sign_in.as_ref()?)))
}

fn registration(issuer: &IssuerSettings, sign_in: &SignIn, client_id: &str) -> Result<Registration, tls::Error> {
    Ok(Registration {
        issuer: issuer.issuer.clone(),
        client_id: client_id.to_owned(),
        scopes: sign_in.scopes.clone(),
        ca: sign_in.authorities.as_deref().map(tls::authorities).transpose()?,
    })
}
