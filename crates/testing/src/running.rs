//! The processes of the program under test that tests expect to run.
//!
//! A wait looks here: after the end of such a process, what it waits for most likely never comes true.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// The process IDs, each with the thread that started the process: the tests of one program run in parallel threads.
static RUNNING: Mutex<Vec<(u32, ThreadId)>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<(u32, ThreadId)>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Expects the process to run from now on.
pub(crate) fn expect(id: u32) {
    running().push((id, std::thread::current().id()));
}

/// Allows the process to end: the test ends it, or has seen its end.
pub(crate) fn forget(id: u32) {
    running().retain(|(other, _)| *other != id);
}

/// Returns a process of this thread that has ended, although the test expects it to run.
pub(crate) fn ended() -> Option<u32> {
    let this = std::thread::current().id();
    running().iter().find(|(id, thread)| *thread == this && is_zombie(*id)).map(|(id, _)| *id)
}

/// Returns whether the process has ended, and its parent has not read its status. The state follows the name in parentheses.
fn is_zombie(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}
