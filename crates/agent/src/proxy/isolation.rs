//! The bounds of a proxy's processes: a hole in a proxy does not give the files of the platform.
//!
//! - If the agent is root, the processes that serve clients have an [`Account`] of their own. Masters stay root: they open low ports and
//!   read certificates, and no octet of a client reaches them.
//! - Where the kernel has Landlock, all processes of the proxy, also those of root, have access to the directory of the proxy and to some
//!   files of the system only, and send signals only to each other. They create files, directories and sockets only.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, LandlockStatus, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, make_bitflags, path_beneath_rules,
};
use rustix::process::geteuid;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

use super::ProxyError;
use crate::render::Account;

/// The version of Landlock whose rights are restricted, as far as the kernel has them: Linux 6.12 has all.
const RESTRICTED: ABI = ABI::V6;
/// The account if none has the name of the proxy. Debian's `www-data` would be that of other web applications, too.
const FALLBACK: &str = "nobody"; // words:ok
/// The files of the system that a proxy may read and execute: programs, libraries, and what these read. `/etc` as a whole has keys.
const READABLE: [&str; 21] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/resolv.conf",
    "/etc/ssl/openssl.cnf",
    "/etc/ssl/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust",
    "/etc/crypto-policies",
    "/dev/urandom",
    "/dev/random",
    // The numbers of processors, and of their memories.
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
];
/// The files of the system that a proxy may write. HAProxy 2.7 and later keep the messages of a start in shared memory.
const WRITABLE: [&str; 2] = ["/dev/null", "/dev/shm"];

/// The settings of the isolation.
#[derive(Clone, Debug, Default)]
pub struct Isolation {
    /// The user of the processes that serve clients, if the agent is root; `None`: a user with the name of the proxy, or the fallback.
    pub user: Option<String>,
    /// The files and directories that the proxy may read and execute, in addition to those of the system.
    pub readable: Vec<PathBuf>,
}

/// The files that the processes of a proxy may access.
#[derive(Debug)]
pub(crate) struct Confinement {
    /// The directory of the proxy, with its configuration and sockets.
    directory: PathBuf,
    readable: Vec<PathBuf>,
    /// The reason why nothing is restricted.
    exception: Option<&'static str>,
}

impl Confinement {
    pub(crate) fn new(program: &Path, directory: &Path, isolation: &Isolation) -> Confinement {
        // A process under Landlock gains no rights from the file of a program.
        let loses_rights = !geteuid().is_root() && has_capabilities(program);
        let readable = isolation.readable.iter().cloned().chain([program.to_owned()]).collect();
        let exception =
            loses_rights.then_some("the program has file capabilities (setcap), which Landlock would disable");
        Confinement { directory: directory.to_owned(), readable, exception }
    }

    /// Starts a process under the restrictions, and returns them for the log.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<(Child, String)> {
        let runtime = Handle::current();
        // Landlock restricts a thread, and the processes that it starts.
        std::thread::scope(|scope| {
            let spawned = scope.spawn(|| {
                let _runtime = runtime.enter();
                let restrictions = self.restrict();
                command.spawn().map(|child| (child, restrictions))
            });
            spawned.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Restricts this thread. It runs without restrictions if that fails.
    fn restrict(&self) -> String {
        if let Some(exception) = self.exception {
            return format!("none: {exception}");
        }
        match self.restrict_by_landlock() {
            Ok(RestrictionStatus { ruleset: RulesetStatus::NotEnforced, landlock, .. }) => match landlock {
                LandlockStatus::NotEnabled => "none: Landlock is turned off in the kernel".to_owned(),
                _ => "none: the kernel does not have Landlock, or a filter of system calls denies it".to_owned(),
            },
            Ok(RestrictionStatus { landlock: LandlockStatus::Available { effective_abi, .. }, .. }) => {
                format!("Landlock ABI {}", effective_abi.min(RESTRICTED) as i32)
            }
            Ok(_) => "Landlock".to_owned(),
            Err(error) => format!("none: {error}"),
        }
    }

    fn restrict_by_landlock(&self) -> Result<RestrictionStatus, RulesetError> {
        let (all, read) = (AccessFs::from_all(RESTRICTED), AccessFs::from_read(RESTRICTED));
        // The agent, which has more rights, must not follow a link to another file, or wait for a pipe.
        let special = make_bitflags!(AccessFs::{MakeSym | MakeFifo | MakeChar | MakeBlock});
        let writable = WRITABLE.iter().map(Path::new).chain([&*self.directory]);
        Ruleset::default()
            .handle_access(all)?
            .scope(Scope::from_all(RESTRICTED))?
            .create()?
            // Files that the system does not have are ignored.
            .add_rules(path_beneath_rules(READABLE, read))?
            .add_rules(path_beneath_rules(&self.readable, read))?
            .add_rules(path_beneath_rules(writable, all & !(special | AccessFs::Execute)))?
            .restrict_self()
    }
}

/// Returns whether a file gives capabilities to a process that executes it.
fn has_capabilities(program: &Path) -> bool {
    rustix::fs::getxattr(program, "security.capability", &mut [0_u8; 64][..]).is_ok()
}

/// Returns the account of the processes that serve clients; `None`: they have that of the agent.
pub(crate) fn account(isolation: &Isolation, proxy: &str) -> Result<Option<Account>, ProxyError> {
    if !geteuid().is_root() {
        return match &isolation.user {
            Some(user) => Err(ProxyError::Unsuitable(format!("the user {user:?} requires an agent that runs as root"))),
            None => Ok(None),
        };
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (users, groups) = (read("/etc/passwd"), read("/etc/group"));
    let wanted = isolation.user.as_ref().map_or(vec![proxy, FALLBACK], |user| vec![user]);
    let account = wanted.iter().find_map(|user| find(user, &users, &groups));
    let missing =
        || format!("the user {:?} of the proxy is not in /etc/passwd, or has no group, or is root", wanted[0]);
    account.map(Some).ok_or_else(|| ProxyError::Unsuitable(missing()))
}

/// Finds a user other than root in the contents of `/etc/passwd` and `/etc/group`.
fn find(user: &str, users: &str, groups: &str) -> Option<Account> {
    let lines = |text: &str, at: usize, value: &str| {
        let mut lines = text.lines().map(|line| line.split(':').map(str::to_owned).collect::<Vec<_>>());
        lines.find(|fields| fields.get(at).is_some_and(|field| field == value))
    };
    let fields = lines(users, 0, user)?;
    let (uid, gid) = (fields.get(2)?, fields.get(3)?);
    let group = lines(groups, 2, gid)?.first()?.clone();
    let account = Account { user: user.to_owned(), group, uid: uid.parse().ok()?, gid: gid.parse().ok()? };
    (account.uid != 0).then_some(account)
}

/// Lets the processes of an account connect to sockets in a directory, and read files of which they have the name. They use relative paths:
/// the directories above can be closed to them.
pub(crate) fn admit(account: &Account, directory: &Path) -> Result<(), ProxyError> {
    let admitted = std::os::unix::fs::chown(directory, None, Some(account.gid));
    admitted.map_err(ProxyError::io(directory.display().to_string()))?;
    set_mode(directory, 0o710)
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), ProxyError> {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).map_err(ProxyError::io(path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// Returns what a shell prints that has access to a directory.
    async fn run(directory: &Path, readable: &[PathBuf], script: &str) -> (String, String) {
        let isolation = Isolation { readable: readable.to_vec(), ..Isolation::default() };
        let confinement = Confinement::new(Path::new("/bin/sh"), directory, &isolation);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).current_dir(directory).stdin(Stdio::null());
        let (child, restrictions) = confinement.spawn(command.stdout(Stdio::piped())).expect("it starts");
        let output = child.wait_with_output().await.expect("it ends");
        (String::from_utf8(output.stdout).expect("text"), restrictions)
    }

    #[tokio::test]
    async fn a_proxy_has_its_own_files_only() {
        let platform = tempfile::tempdir().expect("a directory");
        let directory = platform.path().join("agent/proxy");
        std::fs::create_dir_all(&directory).expect("created");
        let secret = platform.path().join("store");
        std::fs::write(&secret, "secret").expect("written");
        let other = platform.path().join("other");
        std::fs::write(&other, "other").expect("written");
        let script = format!(
            "cat {secret}; cat ../../store; cat /etc/shadow; ls {platform}; echo x >{secret}; echo x >{platform}/new; mv {secret} here; \
             ln -s {secret} link; ln {secret} link; mkfifo pipe; ls link pipe; cp /bin/true true; chmod +x true; ./true && echo ran; \
             kill -0 {own} && echo signaled; cat /proc/{own}/environ; \
             echo own >file && mv file moved && cat moved; cat {other}; cat /etc/passwd >/dev/null && echo passwd",
            secret = secret.display(),
            platform = platform.path().display(),
            other = other.display(),
            own = std::process::id(),
        );
        let (printed, restrictions) = run(&directory, &[other], &script).await;
        if restrictions.contains("kernel") {
            println!("skipped: {restrictions}");
            return;
        }
        let signaled = if restrictions == "Landlock ABI 6" { "" } else { "signaled\n" };
        assert_eq!(printed, format!("{signaled}own\notherpasswd\n"), "{restrictions}");
        assert_eq!(std::fs::read_to_string(&secret).expect("it is there"), "secret");
        assert!(!platform.path().join("new").exists());
        // The agent itself is not restricted.
        std::fs::write(platform.path().join("new"), "x").expect("written");
    }

    #[test]
    fn accounts() {
        let (users, groups) = (
            "root:x:0:0:root:/root:/bin/sh\nhaproxy:x:107:110::/var/lib/haproxy:/sbin/nologin\nlost:x:5:999::/:\n",
            "root:x:0:\nproxies:x:110:\n",
        );
        let found = |user| find(user, users, groups).map(|one| (one.user, one.group, one.uid, one.gid));
        assert_eq!(found("haproxy"), Some(("haproxy".to_owned(), "proxies".to_owned(), 107, 110)));
        for user in ["root", "lost", "absent", ""] {
            assert_eq!(found(user), None, "{user}");
        }
    }

    #[test]
    fn a_user_that_cannot_be_used_is_an_error() {
        let isolation = Isolation { user: Some("no-such-user".to_owned()), ..Isolation::default() };
        let error = account(&isolation, "haproxy").expect_err("it does not exist").to_string();
        assert!(error.contains("no-such-user"), "{error}");
    }
}
