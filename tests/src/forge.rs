//! A forge that keeps comments on one pull request, as GitHub and GitLab do, and remembers what it was asked.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use serde_json::{Value, json};

/// Whom the forge takes callers for.
pub const BOT: &str = "github-actions[bot]";

/// A comment.
#[derive(Debug, Clone)]
pub struct Comment {
    /// Who wrote it.
    pub author: String,
    /// Its text.
    pub body: String,
}

#[derive(Debug, Default)]
struct State {
    comments: Vec<Comment>,
    asked: Vec<String>,
}

/// The forge; it answers until the test ends.
#[derive(Debug)]
pub struct Forge {
    address: String,
    state: Arc<Mutex<State>>,
}

impl Forge {
    /// Starts one.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("its address"));
        let state = Arc::new(Mutex::new(State::default()));
        let kept = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(&stream, &kept);
            }
        });
        Self { address, state }
    }

    /// Where its API is.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A comment by somebody.
    pub fn add(&self, author: &str, body: &str) {
        let comment = Comment { author: author.to_owned(), body: body.to_owned() };
        self.state.lock().unwrap_or_else(PoisonError::into_inner).comments.push(comment);
    }

    /// Every comment, oldest first.
    #[must_use]
    pub fn comments(&self) -> Vec<Comment> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).comments.clone()
    }

    /// Every call that changed something, as `METHOD path`.
    #[must_use]
    pub fn changes(&self) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked.iter().filter(|asked| !asked.starts_with("GET")).cloned().collect()
    }
}

fn answer(stream: &TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let mut words = line.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let (mut length, mut allowed) = (0, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok();
        let Some((name, value)) = header.trim().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "authorization" => allowed |= value.trim() == "Bearer forge-token",
            "private-token" => allowed |= value.trim() == "forge-token",
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok();
    let (status, said) = if allowed { serve(&method, &path, &body, state) } else { ("401 Unauthorized", json!({})) };
    let text = said.to_string();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    let mut stream = stream;
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(text.as_bytes())).ok();
}

fn serve(method: &str, path: &str, body: &[u8], state: &Mutex<State>) -> (&'static str, Value) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    state.asked.push(format!("{method} {path}"));
    let text = serde_json::from_slice::<Value>(body).ok().and_then(|body| body["body"].as_str().map(str::to_owned));
    let (place, query) = path.split_once('?').unwrap_or((path, ""));
    let number = place.rsplit('/').next().and_then(|last| last.parse::<usize>().ok());
    match (method, text) {
        ("GET", _) if place.ends_with("/user") => ("200 OK", json!({ "username": BOT })),
        ("GET", _) => {
            let page = query.split('&').find_map(|part| part.strip_prefix("page=")?.parse::<usize>().ok()).unwrap_or(1);
            let comments = state.comments.iter().enumerate().skip((page - 1) * 100).take(100);
            let shown = comments.map(|(id, comment)| {
                json!({ "id": id, "body": comment.body, "user": { "login": comment.author }, "author": { "username": comment.author } })
            });
            ("200 OK", shown.collect())
        }
        ("POST", Some(body)) => {
            state.comments.push(Comment { author: BOT.to_owned(), body });
            ("201 Created", json!({}))
        }
        ("PATCH" | "PUT", Some(body)) => match number.and_then(|number| state.comments.get_mut(number)) {
            Some(comment) => {
                comment.body = body;
                ("200 OK", json!({}))
            }
            None => ("404 Not Found", json!({})),
        },
        _ => ("400 Bad Request", json!({})),
    }
}
