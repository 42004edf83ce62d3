//! The writes of `Zone` objects.

use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};

use crate::name_server::ledger_name;
use signpost_dns::wire::Name;
use signpost_types::v1alpha1::zone::Zone;

/// A write that is due.
#[derive(Debug, Clone)]
pub enum Write {
    Create(Box<Zone>),
    /// Replace the object, if its version is unchanged.
    Replace(Box<Zone>),
    /// Delete it, if it is still the same.
    Delete(Preconditions),
}

/// Executes the write. Returns the resulting object; `None`: it was deleted.
pub async fn carry_out(api: Api<Zone>, apex: Name, write: Write) -> kube::Result<Option<Zone>> {
    let name = ledger_name(&apex);
    let result = match write {
        Write::Create(zone) => api.create(&PostParams::default(), &zone).await.map(Some),
        Write::Replace(zone) => api.replace(&name, &PostParams::default(), &zone).await.map(Some),
        Write::Delete(preconditions) => {
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            api.delete(&name, &parameters).await.map(|_| None)
        }
    };
    match result {
        // Another writer was faster, or the object was deleted: read it.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => api.get_opt(&name).await,
        result => result,
    }
}

/// Returns the API's reason for rejecting the object, which it will reject again; `None` for too many requests and its own
/// faults.
pub fn refusal(error: &kube::Error) -> Option<&str> {
    match error {
        kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => Some(&status.message),
        _ => None,
    }
}
