//! The processors that a thread may run on.
//!
//! Pinning is an option of the operator, off by default: a name server benefits from it on a dedicated machine; on a shared one,
//! the kernel's scheduler decides better.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the processors that this thread may use, in ascending order.
///
/// # Errors
///
/// The error of `sched_getaffinity`; on a machine with more than 1,024 processors `EINVAL`.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Lets the calling thread run on `cpu` only.
///
/// # Errors
///
/// `EINVAL` if there is no such processor or this process may not use it.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_use_one_processor() {
        let cpus = allowed().unwrap();
        assert!(!cpus.is_empty());
        let last = *cpus.last().unwrap();
        // On a thread of its own, since there is no way back that another test could rely on.
        let seen = std::thread::spawn(move || pin(last).and_then(|()| allowed())).join().unwrap().unwrap();
        assert_eq!(seen, [last]);
        assert!(pin(1 << 20).is_err());
    }
}
