//! The language server, driven as an editor does: its process, over standard input and output.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use serde_json::{Value, json};

/// Far longer than anything takes: a server that does not answer must fail the test and not hang it.
const PATIENCE: Duration = Duration::from_secs(120);

struct Editor {
    server: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    id: u64,
    /// What was published last, by address.
    published: Vec<(String, Value)>,
}

impl Editor {
    fn start(root: &Path) -> Self {
        let mut server = Command::new(env!("CARGO_BIN_EXE_better-compute"))
            .args(["lsp", "--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            loop {
                let (mut length, mut line) = (0, String::new());
                while from.read_line(&mut line).is_ok_and(|read| read > 2) {
                    if let Some(number) = line.strip_prefix("Content-Length: ") {
                        length = number.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                if length == 0 || from.read_exact(&mut body).is_err() {
                    return;
                }
                if send.send(serde_json::from_slice(&body).unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut editor = Self { server, to, from: receive, id: 0, published: Vec::new() };
        let capabilities = editor.ask("initialize", &json!({ "capabilities": {}, "rootUri": uri(root) }));
        assert_eq!(capabilities["capabilities"]["documentFormattingProvider"], true);
        editor.tell("initialized", &json!({}));
        editor
    }

    fn write(&mut self, message: &Value) {
        let body = message.to_string();
        write!(self.to, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        self.to.flush().unwrap();
    }

    fn tell(&mut self, method: &str, params: &Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    fn read(&mut self) -> Value {
        let message = self.from.recv_timeout(PATIENCE).expect("the server is silent");
        if message["method"] == "textDocument/publishDiagnostics" {
            let uri = message["params"]["uri"].as_str().unwrap().to_owned();
            self.published.push((uri, message["params"]["diagnostics"].clone()));
        }
        message
    }

    fn ask_raw(&mut self, method: &str, params: &Value) -> Value {
        self.id += 1;
        let id = self.id;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.read();
            if message["id"] == id {
                return message;
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.ask_raw(method, params);
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// The findings of a file when they are published next.
    fn findings(&mut self, file: &Path) -> Value {
        let uri = uri(file);
        loop {
            if let Some(index) = self.published.iter().position(|(published, _)| *published == uri) {
                return self.published.remove(index).1;
            }
            self.read();
        }
    }

    fn open(&mut self, file: &Path, text: &str) {
        let document = json!({ "uri": uri(file), "languageId": "kdl", "version": 1, "text": text });
        self.tell("textDocument/didOpen", &json!({ "textDocument": document }));
    }

    fn change(&mut self, file: &Path, text: &str) {
        self.published.clear();
        let params =
            json!({ "textDocument": { "uri": uri(file), "version": 2 }, "contentChanges": [{ "text": text }] });
        self.tell("textDocument/didChange", &params);
    }

    /// Asks about the place that `|` marks in a text, which becomes the file's.
    fn at(&mut self, method: &str, file: &Path, marked: &str) -> Value {
        let at = marked.find('|').unwrap();
        let text = marked.replacen('|', "", 1);
        self.change(file, &text);
        let before = &text[..at];
        let character = before[before.rfind('\n').map_or(0, |index| index + 1)..].encode_utf16().count();
        let position = json!({ "line": before.matches('\n').count(), "character": character });
        self.ask(method, &json!({ "textDocument": { "uri": uri(file) }, "position": position }))
    }

    fn labels(&mut self, file: &Path, marked: &str) -> Vec<String> {
        let answer = self.at("textDocument/completion", file, marked);
        let items = answer["items"].as_array().unwrap_or_else(|| panic!("{marked}: {answer}"));
        items.iter().map(|item| item["label"].as_str().unwrap().to_owned()).collect()
    }

    fn end(mut self) {
        self.ask("shutdown", &Value::Null);
        self.tell("exit", &Value::Null);
        drop(self.to);
        assert!(self.server.wait().unwrap().success());
    }
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn fleet() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("fleet.kdl", "fleet \"t\" { format 1; trust-domain \"t.example\" }\n");
    write("sites/fra1.kdl", "// é\nsite \"fra1\"\n");
    write("profiles/host.kdl", "profile \"host\" { file \"/x\" template=\"templates/x.j2\" }\n");
    write("templates/x.j2", "x\n");
    write("pools/a.kdl", "pool \"a\" { site \"fra1\"; profile \"host\" }\n");
    dir
}

#[test]
fn findings_follow_the_texts_that_are_open() {
    let dir = fleet();
    let (pool, site) = (dir.path().join("pools/a.kdl"), dir.path().join("sites/fra1.kdl"));
    let mut editor = Editor::start(dir.path());
    editor.open(&pool, "pool \"a\" {\n  sitee \"fra1\"\n  profile \"host\"\n}\n");
    let found = editor.findings(&pool);
    let unknown =
        found.as_array().unwrap().iter().find(|one| one["code"] == "BC0203").unwrap_or_else(|| panic!("{found}"));
    assert_eq!(unknown["range"]["start"], json!({ "line": 1, "character": 2 }));
    assert_eq!(unknown["severity"], 1);

    // What is wrong in one file may be caused by another that is not saved.
    editor.change(&pool, "pool \"a\" { site \"fra1\"; profile \"host\" }\n");
    assert!(editor.findings(&pool).as_array().unwrap().iter().all(|one| one["severity"] != 1));
    editor.open(&site, "site \"fra2\"\n");
    let found = editor.findings(&pool);
    assert!(found.as_array().unwrap().iter().any(|one| one["severity"] == 1), "{found}");
    editor.published.clear();
    editor.tell("textDocument/didClose", &json!({ "textDocument": { "uri": uri(&site) } }));
    assert!(editor.findings(&pool).as_array().unwrap().iter().all(|one| one["severity"] != 1));
    editor.end();
}

#[test]
fn words_are_completed_and_explained() {
    let dir = fleet();
    let pool = dir.path().join("pools/a.kdl");
    let yaml = dir.path().join("pools/b.yaml");
    let mut editor = Editor::start(dir.path());
    editor.open(&pool, "");
    editor.open(&yaml, "");
    let has = |labels: &[String], word: &str| assert!(labels.iter().any(|label| label == word), "{word}: {labels:?}");
    has(&editor.labels(&pool, "po|"), "pool");
    has(&editor.labels(&pool, "pool \"b\" {\n  |\n}"), "hardware");
    has(&editor.labels(&pool, "pool \"b\" {\n  hardware { gp|"), "gpus");
    has(&editor.labels(&pool, "pool \"b\" {\n  site \"|"), "fra1");
    has(&editor.labels(&pool, "pool \"b\" {\n  class \"|\"\n}"), "metal-host");
    has(&editor.labels(&pool, "pool \"b\" {\n  hardware {\n gpus 8 |\n"), "memory");
    has(&editor.labels(&pool, "freeze \"x\" {\n  scope \"|\"\n}\n"), "site/fra1");
    has(&editor.labels(&yaml, "ki|"), "kind");
    has(&editor.labels(&yaml, "kind: |"), "pool");
    has(&editor.labels(&yaml, "kind: pool\nname: b\nsite: |"), "fra1");
    has(&editor.labels(&yaml, "kind: pool\npolicy:\n  gpu|"), "gpu-sharing");

    let answer = editor.at("textDocument/hover", &pool, "pool \"b\" {\n  si|te \"fra1\"\n}");
    assert!(answer["contents"]["value"].as_str().unwrap().contains("The site its machines stand in."), "{answer}");
    let answer = editor.at("textDocument/hover", &pool, "po|ol \"b\"\n");
    assert!(answer["contents"]["value"].as_str().unwrap().contains("booked together"), "{answer}");

    let answer = editor.at("textDocument/definition", &pool, "pool \"b\" {\n  site \"fr|a1\"\n}");
    assert_eq!(answer["uri"], uri(&dir.path().join("sites/fra1.kdl")));
    assert_eq!(answer["range"]["start"], json!({ "line": 1, "character": 5 }));
    let profile = "profile \"p\" {\n  file \"/x\" template=\"templates/|x.j2\"\n}\n";
    let answer = editor.at("textDocument/definition", &pool, profile);
    assert_eq!(answer["uri"], uri(&dir.path().join("templates/x.j2")));
    assert_eq!(editor.at("textDocument/definition", &pool, "pool \"b\" {\n  site \"no|\"\n}"), Value::Null);

    editor.change(&pool, "pool   \"b\"{\n// é\n}");
    let answer = editor.ask("textDocument/formatting", &json!({ "textDocument": { "uri": uri(&pool) } }));
    assert_eq!(answer[0]["newText"], "pool \"b\" {\n  // é\n}\n");
    assert_eq!(answer[0]["range"]["end"], json!({ "line": 2, "character": 1 }));
    editor.end();
}

#[test]
fn no_text_ends_the_server() {
    let dir = fleet();
    let (pool, yaml) = (dir.path().join("pools/a.kdl"), dir.path().join("pools/b.yaml"));
    let mut editor = Editor::start(dir.path());
    editor.open(&pool, "");
    editor.open(&yaml, "");
    let deep = "a { ".repeat(5_000);
    let texts = [
        "|",
        "\0|",
        "pool \"|",
        "pool \"\"\"\n|",
        "#\"|",
        "/*|",
        "/-|/-/-",
        "pool { | }}}}",
        "\u{feff}pool|",
        "pool\r\n{|",
        "a=|",
        "=|",
        "{|",
        "kind: |\n  - :\n",
        "- - - |",
        "? |",
        "&a *|",
        "kind: pool\nx: |-\n |",
        "\u{1f980}|\u{202e}",
        "pool (u8)\"|\" { \\",
        &format!("|{deep}"),
        &format!("{deep}|"),
    ];
    for text in texts {
        for file in [&pool, &yaml] {
            for method in ["textDocument/completion", "textDocument/hover", "textDocument/definition"] {
                editor.at(method, file, text);
            }
            editor.ask("textDocument/formatting", &json!({ "textDocument": { "uri": uri(file) } }));
        }
    }
    for params in [
        json!({}),
        json!(null),
        json!({ "textDocument": { "uri": 5 } }),
        json!({ "textDocument": { "uri": "untitled:x" } }),
    ] {
        editor.tell("textDocument/didOpen", &params);
        editor.tell("textDocument/didChange", &params);
        assert_eq!(editor.ask("textDocument/hover", &params), Value::Null);
    }
    assert_eq!(editor.ask_raw("no/such", &json!({}))["error"]["code"], -32601);
    editor.change(&pool, "pool \"a\" { site \"fra1\"; profile \"host\" }\n");
    editor.findings(&pool);
    editor.end();
}
