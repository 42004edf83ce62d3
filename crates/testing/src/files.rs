//! Directories.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate is two directories below the root")
}

/// A temporary directory. Dropping it removes it.
pub struct DataDir(TempDir);

impl Default for DataDir {
    fn default() -> DataDir {
        DataDir::new()
    }
}

impl DataDir {
    /// Creates an empty one.
    pub fn new() -> DataDir {
        DataDir(TempDir::new().expect("a temporary directory can be made"))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &str {
        self.0.path().to_str().expect("temporary paths are UTF-8")
    }

    /// Returns the path of a file in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the path of a file in it, as text for a command line.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.path())
    }

    /// Writes a file in it, and returns its path.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        std::fs::write(self.join(name), contents).expect("a temporary directory is writable");
        self.file(name)
    }

    /// Writes a kubeconfig for an API at this address, without credentials, and returns its path.
    pub fn kubeconfig(&self, address: SocketAddr) -> String {
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: \"http://{address}\"}}}}], \
             users: [{{name: u, user: {{}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}"
        );
        self.write(&format!("{}.kubeconfig", address.port()), text)
    }
}
