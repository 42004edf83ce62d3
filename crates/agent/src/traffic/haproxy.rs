//! HAProxy's own counters, which a worker has since its start.
//!
//! A reload begins new counters, and the replaced worker continues with the old ones until its last connection ends. Its counters stay
//! readable through the master. Requests that it finishes after its last reading are not counted.
//!
//! The backends of the pool are used by one Route after another. Before a backend gets another Route, its counters are read for the
//! Route before.
//!
//! Requests for Routes without a ready endpoint have one backend together. It counts them in a table, by Route.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::{Delta, Mean, Reading, delta_of};
use crate::render::haproxy::{TCP, UNAVAILABLE_HTTP};

/// The time for one reading: with 50,000 servers it has 20 MB.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes of one reading.
const BYTES_MAX: u64 = 128 << 20;
/// The longest line that is read. Those of HAProxy 3 have less than 1 KiB.
const LINE_BYTES_MAX: usize = 8 << 10;
/// The number of lines after which a reading lets other tasks go first: HAProxy sends faster than they are read, and 20,000 lines take
/// 0.2 s, in which no command for a change would be sent.
const LINES_AT_ONCE: usize = 64;
/// The most replaced workers that are read. Each lives for at most 30 minutes.
const REPLACED_MAX: usize = 8;
/// The largest counter.
const COUNT_MAX: u64 = 1 << 56;
/// The most backends that are read before one change.
const REASSIGNED_MAX: usize = 256;

/// The columns that are read. HAProxy documents that it adds columns at the end only; they are found by their names anyway.
const COLUMNS: [&str; 16] = [
    "scur",
    "stot",
    "bin",
    "bout",
    "econ",
    "eresp",
    "hrsp_1xx",
    "hrsp_2xx",
    "hrsp_3xx",
    "hrsp_4xx",
    "hrsp_5xx",
    "hrsp_other",
    "cli_abrt",
    "rtime",
    "ctime",
    "wretr",
];
const SCUR: usize = 0;
const STOT: usize = 1;
const BIN: usize = 2;
const BOUT: usize = 3;
const ECON: usize = 4;
const ERESP: usize = 5;
/// In place of [`ERESP`], after [`with_failures`].
const FAILED: usize = ERESP;
const HRSP: usize = 6;
const HRSP_5XX: usize = 10;
const OTHER: usize = 11;
const CLI_ABRT: usize = 12;
const RTIME: usize = 13;
const CTIME: usize = 14;
const WRETR: usize = 15;

type Values = [u64; COLUMNS.len()];

/// Adds to a sum of many counters, which can be wrong.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// The name of a backend among its servers.
const BACKEND: &str = "BACKEND";

/// Replaces the response errors, which do not count an answer of the script, by the requests that ended without a response.
fn with_failures(mut values: Values) -> Values {
    let ended = values[HRSP..=CLI_ABRT].iter().sum::<u64>() + values[SCUR];
    values[FAILED] = values[STOT].saturating_sub(ended);
    values
}

/// The positions of [`COLUMNS`] in a line.
#[derive(Debug)]
struct Layout(Vec<Option<usize>>);

impl Layout {
    /// Reads the first line: `# pxname,svname,…`.
    fn read(line: &str) -> Option<Layout> {
        let names = line.strip_prefix("# pxname,svname,")?.split(',');
        Some(Layout(names.map(|name| COLUMNS.iter().position(|column| *column == name)).collect()))
    }

    /// Reads a line with the counters of a backend or server: its names, and the values. An absent value is 0.
    fn row<'a>(&self, line: &'a str) -> Option<(&'a str, &'a str, Values)> {
        let mut fields = line.split(',');
        let (proxy, server) = (fields.next()?, fields.next()?);
        let mut values = Values::default();
        for (field, column) in fields.zip(&self.0) {
            if let (Some(column), false) = (column, field.is_empty()) {
                // A limit, so that sums cannot overflow.
                values[*column] = field.parse::<u64>().ok()?.min(COUNT_MAX);
            }
        }
        Some((proxy, server, values))
    }
}

/// Reads a line of `show table`: the key and the number of requests.
fn table_row(line: &str) -> Option<(&str, u64)> {
    let field = |name: &str| line.split_ascii_whitespace().find_map(|word| word.strip_prefix(name));
    let count: u64 = field("http_req_cnt=")?.parse().ok()?;
    Some((field("key=")?, count.min(COUNT_MAX)))
}

/// The meter of a HAProxy.
#[derive(Debug)]
pub struct HaproxyMeter {
    worker_socket: PathBuf,
    master_socket: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    workers: Vec<Worker>,
    pending: HashMap<Box<str>, Delta>,
}

/// The counters of a worker at the last reading.
#[derive(Debug, Default)]
struct Worker {
    pid: String,
    is_replaced: bool,
    /// The identifier of the Route of each backend.
    routes: HashMap<String, Owner>,
    /// The counters by `backend/server`, with the number of the reading; `BACKEND` as the server: the backend itself.
    last: HashMap<String, (u64, Values)>,
    /// The requests to Routes without a ready endpoint by identifier, with the number of the reading.
    unavailable: HashMap<String, (u64, u64)>,
    /// The unanswered requests by backend for HTTP.
    unanswered: HashMap<String, Unanswered>,
    /// The number of readings of all counters.
    readings: u64,
}

/// The responses with a status of 5xx that HAProxy itself made because no endpoint answered: those of the backend without those of its
/// servers. HAProxy writes the servers first, and finishes requests meanwhile, so that the difference can be too large for a moment.
#[derive(Debug, Default)]
struct Unanswered {
    backend: u64,
    servers: u64,
    reported: u64,
}

impl Unanswered {
    /// Returns the further ones.
    fn advance(&mut self) -> u64 {
        let more = self.backend.saturating_sub(self.servers).saturating_sub(self.reported);
        self.reported += more;
        more
    }
}

#[derive(Debug)]
struct Owner {
    route: Box<str>,
    /// Whether the counters of the Route before could not be read: the next reading is only the new start.
    is_uncertain: bool,
}

/// The lines of a reading.
enum CounterRow<'a> {
    Row(&'a str, &'a str, Values),
    Unavailable(&'a str, u64),
}

impl HaproxyMeter {
    pub fn new(worker_socket: PathBuf, master_socket: PathBuf) -> HaproxyMeter {
        HaproxyMeter { worker_socket, master_socket, state: Mutex::default() }
    }

    /// Records a worker that has just started, with the Routes of its backends.
    pub fn started(&self, pid: String, backends: impl Iterator<Item = (String, String)>) {
        let routes = backends.map(|(backend, route)| (backend, Owner { route: route.into(), is_uncertain: false }));
        let mut state = self.state.lock();
        state.workers.retain(|worker| worker.pid != pid);
        state.workers.iter_mut().for_each(|worker| worker.is_replaced = true);
        let surplus = (state.workers.len() + 1).saturating_sub(REPLACED_MAX + 1);
        state.workers.drain(..surplus);
        state.workers.push(Worker { pid, routes: routes.collect(), ..Worker::default() });
    }

    /// Records the Routes of backends of the worker before they get requests.
    pub async fn assign(&self, backends: impl Iterator<Item = (String, String)>) {
        let mut reassigned = Vec::new();
        {
            let mut state = self.state.lock();
            let Some(worker) = state.workers.last_mut() else { return };
            for (backend, route) in backends {
                match worker.routes.get(&backend) {
                    Some(owner) if *owner.route == *route => {}
                    Some(_) => reassigned.push((backend, route)),
                    None => {
                        worker.routes.insert(backend, Owner { route: route.into(), is_uncertain: false });
                    }
                }
            }
        }
        if reassigned.is_empty() {
            return;
        }
        let first = reassigned.iter().take(REASSIGNED_MAX);
        let commands: String = first.map(|(backend, _)| format!("show stat {backend} 6 -1;")).collect();
        let is_read = self.poll_worker(&commands, false).await.is_ok();
        let mut state = self.state.lock();
        let Some(worker) = state.workers.last_mut() else { return };
        for (at, (backend, route)) in reassigned.into_iter().enumerate() {
            let is_uncertain = !is_read || at >= REASSIGNED_MAX;
            worker.routes.insert(backend, Owner { route: route.into(), is_uncertain });
        }
    }

    /// Reads the worker that is about to be replaced.
    pub async fn before_reload(&self) {
        if let Err(error) = self.poll_current().await {
            tracing::debug!(%error, "failed to read the counters of HAProxy before a reload");
        }
    }

    /// Returns what was added since the last call.
    pub fn take(&self) -> Reading {
        Reading { routes: std::mem::take(&mut self.state.lock().pending), lost: 0 }
    }

    async fn poll_current(&self) -> io::Result<()> {
        self.poll_worker(&format!("show stat -1 6 -1;show table {UNAVAILABLE_HTTP};"), true).await
    }

    /// Runs commands in the current worker, and adds the counters in its responses. `is_whole`: they are all that there are.
    async fn poll_worker(&self, commands: &str, is_whole: bool) -> io::Result<()> {
        self.poll(&self.worker_socket, &format!("show info;{commands}\n"), None, is_whole).await
    }

    async fn poll(&self, socket: &Path, commands: &str, pid: Option<&str>, is_whole: bool) -> io::Result<()> {
        let poll = async {
            let mut stream = UnixStream::connect(socket).await?;
            stream.write_all(commands.as_bytes()).await?;
            if pid.is_some() {
                // A master waits for further commands otherwise.
                stream.shutdown().await?;
            }
            self.absorb(BufReader::new(stream.take(BYTES_MAX)), pid, is_whole).await
        };
        timeout(TIMEOUT, poll).await?
    }

    /// Adds the counters of a response to `show stat` and `show table`. The process id of the worker is in it, or known. `is_whole`: the
    /// response has all counters of the worker.
    pub async fn absorb(
        &self,
        mut response: impl AsyncBufRead + Unpin,
        pid: Option<&str>,
        is_whole: bool,
    ) -> io::Result<()> {
        let mut pid = pid.map(str::to_owned);
        let (mut layout, mut line, mut rows) = (None, Vec::new(), 0);
        loop {
            line.clear();
            let mut limited = (&mut response).take(LINE_BYTES_MAX as u64);
            if limited.read_until(b'\n', &mut line).await? == 0 {
                break;
            }
            let Some(text) = std::str::from_utf8(&line).ok().and_then(|line| line.strip_suffix('\n')) else {
                return Err(io::Error::other("a line of the counters is too long, or no text"));
            };
            if let Some(found) = text.strip_prefix("Pid: ") {
                pid.get_or_insert_with(|| found.to_owned());
            } else if text.starts_with("# pxname") {
                layout = Layout::read(text);
                let mut state = self.state.lock();
                let worker = pid.as_ref().and_then(|pid| state.worker(pid));
                // Of a worker that is not known any more, nothing is needed.
                let Some(worker) = worker else { return Ok(()) };
                worker.readings += u64::from(is_whole && rows == 0);
            } else if let Some(pid) = &pid {
                let row = layout.as_ref().and_then(|layout| layout.row(text));
                let row = row.map(|(proxy, server, values)| CounterRow::Row(proxy, server, values));
                let of_table = || table_row(text).map(|(key, count)| CounterRow::Unavailable(key, count));
                if let Some(row) = row.or_else(of_table) {
                    rows += 1;
                    self.state.lock().add(pid, row);
                }
                if rows % LINES_AT_ONCE == 0 {
                    yield_now().await;
                }
            }
        }
        if rows == 0 {
            return Err(io::Error::other("the response has no counters"));
        }
        let mut state = self.state.lock();
        if let Some(worker) = pid.as_ref().filter(|_| is_whole).and_then(|pid| state.worker(pid)) {
            worker.forget_deleted();
        }
        Ok(())
    }
}

impl Worker {
    /// Forgets servers and entries that the last reading did not have. If they are added again, their counters begin with 0.
    fn forget_deleted(&mut self) {
        let current = self.readings;
        self.last.retain(|_, (reading, _)| *reading == current);
        self.unavailable.retain(|_, (reading, _)| *reading == current);
    }
}

#[async_trait]
impl super::Meter for HaproxyMeter {
    async fn read(&self) -> io::Result<Reading> {
        self.state.lock().pending.values_mut().for_each(|delta| delta.open = None);
        let replaced: Vec<String> = {
            let state = self.state.lock();
            state.workers.iter().filter(|worker| worker.is_replaced).map(|worker| worker.pid.clone()).collect()
        };
        for pid in replaced {
            let commands = format!("@!{pid} show stat -1 6 -1\n");
            // The worker has ended, or the master is being replaced, which repeats the reading.
            if self.poll(&self.master_socket, &commands, Some(&pid), true).await.is_err()
                && std::fs::metadata(format!("/proc/{pid}")).is_err()
            {
                self.state.lock().workers.retain(|worker| worker.pid != pid);
            }
        }
        self.poll_current().await?;
        Ok(self.take())
    }
}

impl State {
    fn worker(&mut self, pid: &str) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|worker| worker.pid == pid)
    }

    /// Adds a line to the pending changes. Counters only grow, so that a lower value is that of an older reading.
    fn add(&mut self, pid: &str, line: CounterRow<'_>) {
        let State { workers, pending } = self;
        let Some(worker) = workers.iter_mut().find(|worker| worker.pid == pid) else { return };
        match line {
            CounterRow::Unavailable(route, count) => {
                let (reading, last) = worker.unavailable.entry(route.to_owned()).or_default();
                *reading = worker.readings;
                let more = count.saturating_sub(*last);
                *last = count;
                if more == 0 {
                    return;
                }
                let Some(delta) = delta_of(pending, route) else { return };
                add(&mut delta.counters.requests[5], more);
                add(&mut delta.counters.errors, more);
            }
            CounterRow::Row(backend, server, values) => {
                let Some(owner) = worker.routes.get_mut(backend) else { return };
                let (reading, last) = worker.last.entry(format!("{backend}/{server}")).or_default();
                *reading = worker.readings;
                let values = with_failures(values);
                let more: Values = std::array::from_fn(|at| values[at].saturating_sub(last[at]));
                last.iter_mut().zip(values).for_each(|(last, value)| *last = value.max(*last));
                if owner.is_uncertain {
                    owner.is_uncertain = server != BACKEND;
                    return;
                }
                let Some(delta) = delta_of(pending, &owner.route) else { return };
                if backend.starts_with(TCP) {
                    return delta.count_tcp(server, &more, &values);
                }
                let unanswered = worker.unanswered.entry(backend.to_owned()).or_default();
                if server == BACKEND {
                    unanswered.backend += more[HRSP_5XX];
                    delta.counters.errors += unanswered.advance();
                } else {
                    unanswered.servers += more[HRSP_5XX];
                }
                delta.count_http(server, &more, &values);
            }
        }
    }
}

impl Delta {
    /// Adds what a backend for HTTP, or one of its servers, has counted.
    fn count_http(&mut self, server: &str, more: &Values, values: &Values) {
        let answered = more[HRSP..OTHER].iter().sum();
        if server != BACKEND {
            return self.count_server(server, answered, more[FAILED]);
        }
        self.count_backend(more, values);
        self.counters.requests[0] += more[OTHER];
        self.counters.requests[1..].iter_mut().zip(&more[HRSP..OTHER]).for_each(|(sum, more)| *sum += more);
        if answered > 0 {
            self.mean = Some(Mean::Last((values[RTIME] + values[CTIME]) as f64));
        }
    }

    /// Adds what a backend for passthrough, or one of its servers, has counted: connections.
    fn count_tcp(&mut self, server: &str, more: &Values, values: &Values) {
        if server != BACKEND {
            // Each try counts as a connection.
            let failed = more[ECON] + more[WRETR];
            return self.count_server(server, more[STOT].saturating_sub(failed), failed);
        }
        self.count_backend(more, values);
        self.counters.connections += more[STOT];
        self.counters.errors += more[ECON];
    }

    fn count_server(&mut self, server: &str, answered: u64, failed: u64) {
        if answered + failed > 0 {
            let id = server.split_once('-').map_or(server, |(id, _)| id);
            let attempts = self.endpoints.entry(id.into()).or_default();
            add(&mut attempts.answered, answered);
            add(&mut attempts.failed, failed);
        }
    }

    fn count_backend(&mut self, more: &Values, values: &Values) {
        *self.open.get_or_insert(0) += values[SCUR];
        self.counters.bytes_in += more[BIN];
        self.counters.bytes_out += more[BOUT];
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::{Attempts, Counters};
    use super::*;

    const HEAD: &str = "# pxname,svname,qcur,scur,stot,bin,bout,econ,eresp,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,\
                        hrsp_other,ctime,rtime,\n";

    fn meter(backends: &[(&str, &str)]) -> HaproxyMeter {
        let meter = HaproxyMeter::new(PathBuf::new(), PathBuf::new());
        start(&meter, "7", backends);
        meter
    }

    fn start(meter: &HaproxyMeter, pid: &str, backends: &[(&str, &str)]) {
        meter.started(pid.to_owned(), backends.iter().map(|(one, route)| ((*one).to_owned(), (*route).to_owned())));
    }

    async fn absorb(meter: &HaproxyMeter, text: &str) -> io::Result<()> {
        meter.absorb(text.as_bytes(), None, true).await
    }

    /// The requests by class, errors, connections, and bytes in both directions.
    type Difference = ([u64; 6], u64, u64, (u64, u64));

    /// Returns the pending changes of a Route.
    fn taken(meter: &HaproxyMeter, route: &str) -> Option<Difference> {
        let delta = meter.state.lock().pending.remove(route)?;
        let Counters { requests, errors, connections, bytes_in, bytes_out } = delta.counters;
        Some((requests, errors, connections, (bytes_in, bytes_out)))
    }

    #[tokio::test]
    async fn counters_are_differences() {
        let meter = meter(&[("h0", "a"), ("h1", "b"), ("t0", "c")]);
        let text = |h0: &str, t0: &str| {
            format!(
                "Name: HAProxy\nPid: 7\n\n{HEAD}h0,1-a,0,0,3,0,0,1,0,0,2,0,0,0,0,1,2,\nh0,BACKEND,0,1,3,{h0}\nt0,BACKEND,0,2,{t0}\nh9,BACKEND,0,0,9,9,9,,,,,,,,,,,\n\n\
                     # table: unavailable, type: string\n0x1: key=b use=0 exp=1 shard=0 http_req_cnt=4\n\n"
            )
        };
        let first = text("10,20,1,0,0,2,0,0,1,0,3,4,", "5,6,7,1,0,,,,,,,,,");
        absorb(&meter, &first).await.expect("counters");
        let delta = meter.state.lock().pending["a"].clone();
        assert_eq!((delta.open, delta.mean), (Some(1), Some(Mean::Last(7.0))));
        assert_eq!(delta.endpoints["1"], Attempts { answered: 2, failed: 1 });
        assert_eq!(taken(&meter, "a"), Some(([0, 0, 2, 0, 0, 1], 1, 0, (10, 20))));
        assert_eq!(taken(&meter, "b"), Some(([0, 0, 0, 0, 0, 4], 4, 0, (0, 0))));
        assert_eq!(taken(&meter, "c"), Some(([0; 6], 1, 5, (6, 7))));
        // The same, and one more.
        absorb(&meter, &text("10,25,1,0,0,2,1,0,1,0,3,4,", "5,6,7,1,0,,,,,,,,,")).await.expect("counters");
        assert_eq!(taken(&meter, "a"), Some(([0, 0, 0, 1, 0, 0], 0, 0, (0, 5))));
        assert_eq!(taken(&meter, "b"), None);
        // An older reading that came late changes nothing.
        absorb(&meter, &first).await.expect("counters");
        assert_eq!(taken(&meter, "a"), Some(([0; 6], 0, 0, (0, 0))));
    }

    /// The replaced worker continues, and the new one starts with zero.
    #[tokio::test]
    async fn sums_grow_over_a_reload() {
        let meter = meter(&[("h0", "a")]);
        let text = |pid: &str, bytes: u64| format!("Pid: {pid}\n\n{HEAD}h0,BACKEND,0,0,1,{bytes},0,,,,,,,,,,,\n\n");
        absorb(&meter, &text("7", 100)).await.expect("counters");
        start(&meter, "8", &[("h0", "b")]);
        absorb(&meter, &text("8", 10)).await.expect("counters");
        absorb(&meter, &text("7", 130)).await.expect("counters");
        // The agent did not start this one.
        absorb(&meter, &text("9", 1_000)).await.expect("it is ignored");
        let bytes = |route| taken(&meter, route).map(|(_, _, _, (bytes, _))| bytes);
        assert_eq!((bytes("a"), bytes("b")), (Some(130), Some(10)));
        for pid in 10..30 {
            start(&meter, &pid.to_string(), &[]);
        }
        assert_eq!(meter.state.lock().workers.len(), REPLACED_MAX + 1);
    }

    /// A Route never gets the counts of another Route that had its backend before.
    #[tokio::test]
    async fn a_backend_that_changes_its_route() {
        let meter = meter(&[("h0", "a")]);
        // Nothing listens there, so the counters cannot be read before the change.
        let backends = [("h0", "b"), ("h1", "c")].map(|(one, route)| (one.to_owned(), route.to_owned()));
        meter.assign(backends.into_iter()).await;
        let text = |bytes: u64| {
            format!("Pid: 7\n\n{HEAD}h0,BACKEND,0,0,1,{bytes},0,,,,,,,,,,,\nh1,BACKEND,0,0,1,1,0,,,,,,,,,,,\n\n")
        };
        absorb(&meter, &text(100)).await.expect("counters");
        absorb(&meter, &text(101)).await.expect("counters");
        let bytes = |route| taken(&meter, route).map(|(_, _, _, (bytes, _))| bytes);
        assert_eq!((bytes("a"), bytes("b"), bytes("c")), (None, Some(1), Some(1)));
    }

    /// The lines are all there at once.
    #[tokio::test]
    async fn a_reading_lets_other_tasks_go_first() {
        let meter = meter(&[("h0", "a")]);
        let text = format!("Pid: 7\n{HEAD}{}", "h0,BACKEND,0,0,1,1,0,,,,,,,,,,,\n".repeat(10_000));
        let (is_read, mut polls) = (Cell::new(false), 0);
        let reading = async {
            absorb(&meter, &text).await.expect("counters");
            is_read.set(true);
        };
        let other = async {
            while !is_read.get() {
                polls += 1;
                yield_now().await;
            }
        };
        tokio::join!(reading, other);
        assert!(polls >= 10_000 / LINES_AT_ONCE, "{polls}");
    }

    #[tokio::test]
    async fn what_is_not_a_response() {
        let long = format!("Pid: 7\n{HEAD}{}", "a".repeat(LINE_BYTES_MAX + 1));
        for text in ["", "Pid: 7\n", "Unknown command\n", "Pid: 7\nh0,BACKEND,1,1\n", long.as_str()] {
            assert!(absorb(&meter(&[("h0", "a")]), text).await.is_err(), "{text:.60?}");
        }
        assert!(Layout::read(HEAD.trim_end()).is_some_and(|layout| layout.row("h0,BACKEND,0,x").is_none()));
    }

    proptest::proptest! {
        /// No response makes the meter panic, or count more than 18 digits of anything.
        #[test]
        fn any_text(text in "(Pid: 7\n)?(# pxname,svname,(scur|stot|bin|hrsp_2xx|,){0,9}\n)?(h0,(BACKEND|1),[0-9,x]{0,40}\n|\\PC{0,30}\n){0,8}") {
            let meter = meter(&[("h0", "a")]);
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let _ = runtime.block_on(absorb(&meter, &text));
            let _ = runtime.block_on(absorb(&meter, &text));
        }
    }
}
