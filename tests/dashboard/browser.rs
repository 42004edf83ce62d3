//! Chromium, spoken to by the WebDriver protocol (W3C WebDriver 2) over plain HTTP: the few commands that these tests need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use signpost_testing::{Process, until};

/// The timeout of a command: the page's own scripts are bounded by it.
const COMMAND_LONGEST: Duration = Duration::from_secs(90);

/// Keys by the protocol's code points.
pub const TAB: &str = "\u{E004}";
pub const ENTER: &str = "\u{E007}";
pub const ESCAPE: &str = "\u{E00C}";

/// The number of times that chromedriver is started until it has a port.
const STARTS_MAX: usize = 10;

/// A browser with one page. Dropping it ends it.
pub struct Browser {
    _driver: Process,
    address: SocketAddr,
    session: String,
}

/// Starts chromedriver, and returns it with its port. It chooses a free port of IPv6, and ends if another program uses the same port of IPv4.
fn driver() -> Option<(Process, u16)> {
    for _ in 0..STARTS_MAX {
        let mut command = Command::new("chromedriver");
        let command = command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let driver = Process::start(command).inspect_err(|error| {
            eprintln!(
                "SKIPPED: no browser to look with: {error}. Debian has it as chromium-driver, with chromium; scripts/test \
                 installs both"
            );
        });
        let driver = driver.ok()?;
        driver.logs(" on port 0");
        let line = driver.logs(" port ");
        if let Some((_, port)) = line.rsplit_once("was started successfully on port ") {
            return Some((driver, port.trim_end_matches('.').parse().expect("a port")));
        }
    }
    panic!("chromedriver has no port after {STARTS_MAX} starts");
}

impl Browser {
    /// Starts one; `None`, and loudly so, where there is none to be had.
    pub fn start() -> Option<Browser> {
        Browser::start_with(&[], &json!({}))
    }

    /// Starts one with these arguments and settings of the local state.
    pub fn start_with(more: &[&str], local_state: &Value) -> Option<Browser> {
        let (driver, port) = driver()?;
        let mut browser =
            Browser { _driver: driver, address: (Ipv4Addr::LOCALHOST, port).into(), session: String::new() };
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"];
        let arguments = [&arguments[..], more].concat();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments, "localState": local_state},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let started = browser.command("POST", "/session", &wanted);
        let session = started["sessionId"].as_str().expect("a session has an id").to_owned();
        browser.session = format!("/session/{session}");
        Some(browser)
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.request(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer["value"].clone()
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).expect("chromedriver listens");
        stream.set_read_timeout(Some(COMMAND_LONGEST)).expect("a timeout can be set");
        let body = if method == "POST" { body.to_string() } else { String::new() };
        write!(
            stream,
            "{method} {}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.session,
            body.len()
        )
        .expect("chromedriver reads");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("chromedriver answers");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line.trim().is_empty() {
                break;
            }
            head += &line;
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut octets = vec![0; length];
        reader.read_exact(&mut octets).expect("the whole answer comes");
        (status, serde_json::from_slice(&octets).unwrap_or_default())
    }

    /// Goes to an address.
    pub fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({"url": url}));
    }

    /// Runs a script in the page and gives what it returns.
    pub fn script(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Returns the text of the page's main part.
    pub fn text(&self) -> String {
        self.script("return document.getElementById('main').innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page's main part holds `text`.
    pub fn sees(&self, text: &str) {
        let seen = until(&format!("{text:?} is seen"), || {
            let seen = self.text();
            if seen.contains(text) { Ok(seen) } else { Err(format!("{seen}\n{:?}", self.log())) }
        });
        for absent in ["undefined", "NaN", "[object"] {
            assert!(!seen.contains(absent), "{seen}");
        }
    }

    /// Waits until a script returns true.
    pub fn comes_true(&self, script: &str) {
        until(script, || match self.script(script) {
            Value::Bool(true) => Ok(()),
            _ => Err(format!("the page:\n{}\n{:?}", self.text(), self.log())),
        });
    }

    /// Types these keys where the focus is.
    pub fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})])
            .collect();
        self.command("POST", "/actions", &json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]}));
    }

    /// Returns the focused element: its tag and its text or label.
    pub fn focus(&self) -> String {
        let script = "const it = document.activeElement; return `${it.localName} ${it.id || it.getAttribute('aria-label') \
                      || it.innerText.trim()}`";
        self.script(script).as_str().unwrap_or_default().to_owned()
    }

    /// Returns the cookies that this page's server has set.
    pub fn cookies(&self) -> Vec<Value> {
        self.command("GET", "/cookie", &Value::Null).as_array().cloned().unwrap_or_default()
    }

    /// Returns the console messages since the last call: errors of scripts, violations of the content security policy, and failed
    /// requests.
    pub fn log(&self) -> Vec<String> {
        let entries = self.command("POST", "/se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| format!("{} {}", entry["level"], entry["message"])).collect()
    }

    /// Makes the page as wide and high as this, in CSS pixels, as on a small screen.
    pub fn resize(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": true});
        self.command(
            "POST",
            "/goog/cdp/execute",
            &json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics}),
        );
    }

    /// Sets the colour scheme that the user prefers: `light` or `dark`.
    pub fn prefer(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        let command = json!({"cmd": "Emulation.setEmulatedMedia", "params": features});
        self.command("POST", "/goog/cdp/execute", &command);
    }

    /// Writes an image of the whole page into the directory in `SIGNPOST_DASHBOARD_IMAGES`, if there is one.
    pub fn photograph(&self, name: &str) {
        let Some(directory) = std::env::var_os("SIGNPOST_DASHBOARD_IMAGES") else { return };
        let command = json!({"cmd": "Page.captureScreenshot", "params": {"captureBeyondViewport": true}});
        let image = self.command("POST", "/goog/cdp/execute", &command)["data"].clone();
        let image = data_encoding::BASE64.decode(image.as_str().unwrap_or_default().as_bytes()).expect("base64");
        std::fs::write(std::path::Path::new(&directory).join(format!("{name}.png")), image).expect("a directory");
    }

    /// Signs in with a token.
    pub fn sign_in(&self, admin: SocketAddr, token: &str) {
        self.open(&format!("http://{admin}/dashboard/"));
        self.comes_true("return document.activeElement?.id === 'token'");
        self.press(token);
        self.press(ENTER);
        self.comes_true("return document.querySelector('.who') !== null");
    }

    /// Goes to a place within the page.
    pub fn go(&self, place: &str) {
        self.script(&format!("location.hash = {}", Value::from(place)));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium ends with its session, and would outlive a chromedriver that is killed. This may be because a test has
        // failed, so that nothing here may.
        let goodbye = format!("DELETE {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", self.session);
        if let Ok(mut stream) = TcpStream::connect(self.address) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let _ = stream.write_all(goodbye.as_bytes());
            // It answers when Chromium has ended.
            let _ = stream.read(&mut [0; 1024]);
        }
    }
}
