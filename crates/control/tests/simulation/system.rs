//! Replacements of the system's clocks, entropy, and sleep: in a process that simulates, all follow from the seed.
//!
//! std, tokio, and every library get the time and their random numbers (of `HashMap`s, `select!`, UUIDs, jitter) from the C
//! library, and an idle runtime waits in its `epoll_wait`. The three functions here replace those of the C library in this
//! executable: the wait returns immediately, and the clocks advance by as much. So the code under test needs no seam for either,
//! and no use of them can be missed. In all other threads, they call the kernel.
#![allow(unsafe_code, reason = "three functions of the C library are replaced")]

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

/// The wall clock at the start: later than any real one, so that nothing that a real thread reads has expired.
const EPOCH_SECONDS: u64 = 2_000_000_000;
/// The monotonic clock at the start.
const UPTIME: Duration = Duration::from_secs(1_000_000);

static SEED: OnceLock<u64> = OnceLock::new();

thread_local! {
    static SIMULATES: Cell<bool> = const { Cell::new(false) };
    static ELAPSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// The error in seconds of the wall clock of the process that is being polled.
    static OFFSET: Cell<i64> = const { Cell::new(0) };
    static ENTROPY: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs `simulation` in a thread and runtime of its own, under virtual clocks and by `seed`. Once in a process.
pub fn simulate<F: Future<Output = ()>>(seed: u64, simulation: impl FnOnce() -> F + Send + 'static) {
    SEED.set(seed).expect("a process simulates once");
    let thread = std::thread::spawn(move || {
        SIMULATES.set(true);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(simulation());
    });
    thread.join().expect("the simulation does not panic");
}

/// Virtual time for this thread, until it is dropped.
pub struct VirtualTime(());

impl VirtualTime {
    pub fn begin() -> VirtualTime {
        SIMULATES.set(true);
        VirtualTime(())
    }
}

impl Drop for VirtualTime {
    fn drop(&mut self) {
        SIMULATES.set(false);
    }
}

/// Returns the virtual time since the start.
pub fn elapsed() -> Duration {
    ELAPSED.get()
}

/// Sets the error of the wall clock to `seconds`; returns the former one.
pub fn set_offset(seconds: i64) -> i64 {
    OFFSET.replace(seconds)
}

/// Returns the next value of SplitMix64.
pub fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn is_simulated() -> bool {
    SIMULATES.try_with(Cell::get).unwrap_or(false)
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, out: *mut libc::timespec) -> libc::c_int {
    if !is_simulated() {
        // SAFETY: the caller's arguments, for the system call of that name.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, out) } as libc::c_int;
    }
    let began = match clock {
        libc::CLOCK_REALTIME => Duration::from_secs(EPOCH_SECONDS.saturating_add_signed(OFFSET.get())),
        _ => UPTIME,
    };
    let now = began + elapsed();
    let seconds = now.as_secs().try_into().expect("within the next centuries");
    // SAFETY: the caller passes a place for a time.
    unsafe { out.write(libc::timespec { tv_sec: seconds, tv_nsec: now.subsec_nanos().into() }) };
    0
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(poll: i32, events: *mut libc::epoll_event, most: i32, milliseconds: i32) -> i32 {
    let now = if is_simulated() { 0 } else { milliseconds };
    let no_signals = std::ptr::null::<libc::sigset_t>();
    // SAFETY: the caller's arguments, for a system call that does the same.
    let found = unsafe { libc::syscall(libc::SYS_epoll_pwait, poll, events, most, now, no_signals, 8) } as i32;
    if found == 0 && is_simulated() {
        assert!(milliseconds >= 0, "nothing will ever happen any more");
        ELAPSED.set(elapsed() + Duration::from_millis(milliseconds as u64));
    }
    found
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut libc::c_void, length: usize, flags: libc::c_uint) -> isize {
    let Some(seed) = SEED.get() else {
        // SAFETY: the caller's arguments, for the system call of that name.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) } as isize;
    };
    let first = ENTROPY.get().unwrap_or(mix(*seed));
    for place in 0..length {
        // SAFETY: the caller's buffer has room for `length` octets.
        unsafe { buffer.cast::<u8>().add(place).write(mix(first.wrapping_add(place as u64)) as u8) };
    }
    ENTROPY.set(Some(first.wrapping_add(length as u64)));
    length.try_into().expect("a buffer is smaller than half of memory")
}
