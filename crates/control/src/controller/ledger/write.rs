//! The writes of `Zone` objects.

use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};

use crate::controller::zone::ledger_name;
use signpost_api::v1alpha1::zone::Zone;
use signpost_dns::wire::Name;

/// A write that is due.
#[derive(Debug, Clone)]
pub enum Write {
    /// Create the object.
    Create(Box<Zone>),
    /// Replace it, if it is still as it was seen.
    Replace(Box<Zone>),
    /// Delete it, if it is still the same.
    Delete(Preconditions),
}

/// Writes. Returns the object as it is then; `None`: it is gone.
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
        // Someone was faster, or it is gone: see what is there.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => api.get_opt(&name).await,
        result => result,
    }
}

/// Returns the API's reason to refuse the object, which it will do again; `None` for too many requests and its own faults.
pub fn refusal(error: &kube::Error) -> Option<&str> {
    match error {
        kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => Some(&status.message),
        _ => None,
    }
}
