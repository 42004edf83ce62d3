//! The processors that a thread may run on.
//!
//! Pinning is an option of the operator, off by default: a name server benefits from it on a dedicated machine; on a shared one,
//! the kernel's scheduler decides better. The standard library offers neither call.

use std::io;

/// Returns the processors this process may use, in ascending order.
///
/// # Errors
///
/// Returns the result of `sched_getaffinity`; on a machine with more than 1,024 processors `EINVAL`.
pub fn allowed() -> io::Result<Vec<usize>> {
    // SAFETY: `cpu_set_t` is a plain array of bits; all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole `cpu_set_t`, and the size given is its size.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: CPU_ISSET reads bit `cpu` of the set, and CPU_SETSIZE is how many bits it has.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect())
}

/// Lets the calling thread run on `cpu` only.
///
/// # Errors
///
/// `EINVAL` if there is no such processor or this process may not use it.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: as in `allowed`; CPU_SET writes bit `cpu`, which lies within the set by the check above.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        set
    };
    // SAFETY: the pointer is to a whole `cpu_set_t`, and the size given is its size; 0 is the calling thread.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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
